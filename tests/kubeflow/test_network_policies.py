"""Connections between pods: all that must be, and no other.

Every client is tried on every port of every server, and what passes is compared with the list of what must.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from platform_sdk.config.cluster import JobSpec, Workspace
from platform_sdk.kubeflow.training_job.description import LABEL_TASK, Description
from tests.kubeflow.policies import Peer, Policies, selects
from tests.kubeflow.rendered import MANIFESTS, Item, built, pods, workloads

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

HOME, SERVICES = "hopforge", "hopforge-services"
RUNS = {"hopforge.dev/runs": "true"}  # of a namespace where runs are
JOB = Description(
    run="hotpot", step="train", namespace=HOME, module="m", spec_file="/w/s", spec=JobSpec(image="i"),
    workspace=Workspace(claim="workspace"),
)  # fmt: skip
WORKFLOW = {"workflows.argoproj.io/workflow": "hotpot-x1"}
OTHER_TEAM = {"hopforge.dev/retriever-client": "true"}  # of a namespace
OUTSIDE = {
    "job": Peer(HOME, JOB.labels()),
    "step": Peer(HOME, {LABEL_TASK: "hotpot", **WORKFLOW}),
    "driver": Peer(HOME, WORKFLOW),
    "unknown": Peer(HOME, {"app": "somebody"}),
    "unknown service": Peer(SERVICES, {"app": "somebody"}),
    "team": Peer("team-b", {LABEL_TASK: "theirs"}),
    "client": Peer("team-c", {"app": "search"}),
    "stranger": Peer("default", {LABEL_TASK: "disguised", "app.kubernetes.io/name": "retriever"}),
    "disguised": Peer(HOME, {"app.kubernetes.io/name": "retriever"}),
    "prometheus": Peer("monitoring", {"app.kubernetes.io/name": "prometheus"}),
    "gateway": Peer("istio-system", {"app": "istio-ingressgateway"}),
    "pipelines": Peer("kubeflow", {"app": "ml-pipeline"}),
    "dns": Peer("kube-system", {"k8s-app": "kube-dns"}),
    "api": Peer(None, address="192.168.49.2"),
    "api in 10": Peer(None, address="10.96.0.1"),
    "api in 172": Peer(None, address="172.20.0.1"),
    "internet": Peer(None, address="203.0.113.7"),
    "internet 6": Peer(None, address="2001:db8::7"),
    "private 6": Peer(None, address="fd00::7"),
    "metadata": Peer(None, address="169.254.169.254"),  # where a cloud's node learns its credentials
    "milvus operator": Peer("milvus-operator", {"app.kubernetes.io/name": "milvus-operator"}),
}
# Of the operator, whose pods are named after the Milvus and its etcd.
MILVUS = Peer("hopforge-milvus", {"app.kubernetes.io/name": "milvus", "app.kubernetes.io/instance": "milvus"})
ETCD = Peer("hopforge-milvus", {"app.kubernetes.io/name": "etcd", "app.kubernetes.io/instance": "milvus-etcd"})

PORTS = {
    "retriever": (8080, 9090), "log": (8080,), "sampler": (8000,), "mlflow": (5000,), "mlflow-db": (5432,),
    "objects": (8333,), "milvus": (19530, 9091), "reaper": (80,), "etcd": (2379, 2380), "api": (80, 443, 6443),
    "api in 10": (80, 443, 6443), "api in 172": (80, 443, 6443),
    "internet": (80, 443, 6443), "internet 6": (80, 443), "private 6": (80, 443), "metadata": (80, 443),
    "unknown service": (80,),
    "pipelines": (80, 8080, 8887, 8888, 9000, 8333),
    # Of a run's pods: the ranks' meeting places, one that the system gave out, and what may listen there besides.
    "job": (23456, 29400, 29500, 40000, 8000, 80), "step": (23456, 29400, 29500, 40000, 8000, 80),
}  # fmt: skip
RUN, PIPELINE, WEB = ("job", "step", "loader"), ("step", "driver"), (443, 6443)
RANKS = (23456, 29400, 29500, 40000)
EXPECTED = {
    *((client, "retriever", 8080) for client in (*RUN, "team", "client")),
    ("prometheus", "retriever", 9090),
    *((client, "log", 8080) for client in (*RUN, "team")),
    *((client, "sampler", 8000) for client in (*RUN, "team")),
    *((client, "mlflow", 5000) for client in (*RUN, "team")),
    *((client, "milvus", 19530) for client in ("retriever", "loader of services")),
    ("prometheus", "milvus", 9091),
    ("mlflow-users", "mlflow", 5000),
    ("mlflow", "mlflow-db", 5432),
    ("mlflow", "objects", 8333),
    *((client, server, port) for client in RUN for server in ("job", "step") for port in RANKS),
    *(
        (client, api, port)
        for client in ("step", "driver", "reaper")
        for api in ("api", "api in 10", "api in 172")
        for port in WEB
    ),
    *((client, net, 443) for client in ("loader", "loader of services") for net in ("internet", "internet 6")),
    *((client, "pipelines", port) for client in PIPELINE for port in (8080, 8887, 8888, 9000, 8333)),
}
OF_THE_OPERATOR = {
    *(("milvus operator", server, port) for server in ("milvus", "etcd") for port in PORTS[server]),
    *(
        (client, server, port)
        for client in ("milvus", "etcd")
        for server in ("milvus", "etcd")
        for port in PORTS[server]
    ),
    *((client, "objects", 8333) for client in ("milvus", "etcd", "milvus operator")),
}


def peers_of(variant: str) -> dict[str, Peer]:
    own = {name: Peer(namespace, template["metadata"]["labels"]) for namespace, name, template in pods(built(variant))}
    [(_, _, loader)], [(namespace, _, other)] = pods(built("loader")), pods(built("services-loader"))
    own["loader of services"], own["loader"] = (
        Peer(namespace, other["metadata"]["labels"]),
        Peer(HOME, loader["metadata"]["labels"]),
    )
    return OUTSIDE | own | ({"milvus": MILVUS, "etcd": ETCD} if variant.endswith("production") else {})


NAMESPACES = {HOME: RUNS, "team-b": RUNS, "team-c": OTHER_TEAM}


@pytest.mark.parametrize("variant", ["overlays/single-node", "overlays/production"])
def test_network_policies_allow_only_required_connections(variant: str) -> None:
    policies, peers = Policies(built(variant), NAMESPACES), peers_of(variant)
    ours = {HOME, SERVICES, "hopforge-milvus"}
    allowed = {
        (client, server, port)
        for client, one in peers.items()
        for server, other in peers.items()
        for port in PORTS.get(server, ())
        if (client != server or client in ("job", "step", "milvus", "etcd"))
        and {one.namespace, other.namespace} & ours
        and policies.allow(one, other, port)
    }
    expected = EXPECTED | (OF_THE_OPERATOR if variant.endswith("production") else set())
    same_pod = {("milvus", "milvus", port) for port in PORTS["milvus"]}  # one pod speaks to itself in any case
    assert allowed - same_pod == expected - same_pod


def test_network_policies_in_kubeflow_namespace_leave_other_pods_alone() -> None:
    """Kubeflow Pipelines for a single user has its own pods beside ours."""
    policies, home = Policies(built("overlays/single-user"), {"kubeflow": RUNS}), "kubeflow"
    ours = {
        name: Peer(SERVICES, template["metadata"]["labels"]) for name, template in workloads(built("base/services"))
    }
    pipelines, run, dns = Peer(home, {"app": "ml-pipeline"}), Peer(home, OUTSIDE["step"].labels), OUTSIDE["dns"]
    job, driver, others_step = Peer(home, JOB.labels()), Peer(home, WORKFLOW), Peer(home, WORKFLOW | {"app": "theirs"})
    for pod in (pipelines, driver, others_step):
        for other in (pipelines, driver, others_step, Peer(None)):
            assert policies.allow(pod, other, 8888)
            assert policies.allow(other, pod, 8888)
    # Runs are as closed as elsewhere: they reach what they must, and nobody reaches them.
    assert policies.allow(run, pipelines, 8888)
    assert not policies.allow(job, pipelines, 8888)
    assert not policies.allow(run, Peer(None), 8888)
    for other in (pipelines, driver, others_step, Peer("default")):
        assert not policies.allow(other, job, 23456)
        assert not policies.allow(other, run, 8888)
    assert policies.allow(job, job, 23456)
    assert not policies.allow(run, ours["milvus"], 19530)
    assert not policies.allow(job, ours["milvus"], 19530)
    for name, port in (("retriever", 8080), ("mlflow", 5000)):
        assert policies.allow(run, ours[name], port)
        assert policies.allow(job, ours[name], port)
        assert not policies.allow(pipelines, ours[name], port)
        assert not policies.allow(ours[name], Peer(None), 443)
    assert policies.allow(ours["mlflow"], ours["mlflow-db"], 5432)
    assert all(policies.allow(pod, dns, 53, "UDP") for pod in (*ours.values(), pipelines, run))


@pytest.mark.parametrize("variant", ["overlays/single-node", "overlays/production"])
def test_policies_of_runs_and_of_milvus_each_keep_runs_from_milvus(variant: str) -> None:
    peers = peers_of(variant)
    for namespace in (HOME, peers["milvus"].namespace):
        alone = Policies(
            [item for item in built(variant) if item["metadata"].get("namespace") == namespace], NAMESPACES
        )
        for client in RUN:
            assert not alone.allow(peers[client], peers["milvus"], 19530), (namespace, client)


def test_loader_pod_has_the_connections_of_a_run() -> None:
    items: tuple[Item, ...] = built("overlays/production")
    [pod] = built("loader")
    policies, loader = Policies(items, NAMESPACES), Peer(HOME, pod["metadata"]["labels"])
    peers = peers_of("overlays/production")
    assert policies.allow(loader, peers["retriever"], 8080)
    assert not policies.allow(loader, peers["milvus"], 19530)
    assert policies.allow(loader, peers["dns"], 53, "UDP")
    assert policies.allow(loader, peers["internet"], 443)
    assert not policies.allow(loader, peers["pipelines"], 8888)


@pytest.mark.parametrize("variant", ["overlays/single-node", "overlays/production"])
def test_own_pods_reach_the_cluster_dns_and_no_other_name_server(variant: str) -> None:
    policies, peers = Policies(built(variant), {}), peers_of(variant)
    for name, peer in peers.items():
        if peer.namespace in (HOME, SERVICES, "hopforge-milvus"):
            assert policies.allow(peer, peers["dns"], 53, "UDP"), name
            assert policies.allow(peer, peers["dns"], 53, "TCP"), name
            assert not policies.allow(peer, Peer(None), 53, "UDP"), name
            assert not policies.allow(peer, Peer("kube-system", {"k8s-app": "else"}), 53, "UDP"), name


def test_runs_reach_the_internet_only_with_its_component(tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    overlay = tmp_path / "manifests/overlays/single-node/kustomization.yaml"
    overlay.write_text(overlay.read_text() + "  - ../../internet\n")
    policies, peers = Policies(built(str(overlay.parent)), NAMESPACES), peers_of("overlays/single-node")
    for client in ("job", "step"):
        assert policies.allow(peers[client], peers["internet"], 443)
        assert not policies.allow(peers[client], peers["internet"], 80)
        assert not policies.allow(peers[client], peers["metadata"], 443)
    assert not policies.allow(peers["job"], peers["api"], 443)
    assert not policies.allow(peers["mlflow"], peers["internet"], 443)
    single_user = tmp_path / "manifests/overlays/single-user/kustomization.yaml"
    single_user.write_text(
        single_user.read_text().replace("  - ../../small\n", "  - ../../small\n  - ../../internet\n")
    )
    policies = Policies(built(str(single_user.parent)), {"kubeflow": RUNS})
    assert policies.allow(Peer("kubeflow", JOB.labels()), peers["internet"], 443)


@pytest.mark.parametrize("variant", ["base", "overlays/single-node", "overlays/production"])
def test_standing_sampler_has_no_routes_for_new_weights(variant: str) -> None:
    [container] = dict(workloads(built(variant)))["sampler"]["spec"]["containers"]
    assert "VLLM_SERVER_DEV_MODE" not in {variable["name"] for variable in container["env"]}
    assert "VLLM_API_KEY" in {variable["name"] for variable in container["env"]}


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"b": ""}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {"a": "2"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
    ],
)
def test_selectors(selector: dict[str, object], labels: dict[str, str], expected: bool) -> None:
    assert selects(selector, labels) is expected


def test_policy_evaluator_follows_the_kubernetes_rules() -> None:
    """Policies as in the documentation of Kubernetes: denied both ways, then opened a little."""
    deny = {"kind": "NetworkPolicy", "metadata": {"name": "d", "namespace": "a"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}  # fmt: skip
    web = {"kind": "NetworkPolicy", "metadata": {"name": "w", "namespace": "a"},
           "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"],
                    "ingress": [{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "x"}}}],
                                 "ports": [{"port": 80, "endPort": 90}]}]}}  # fmt: skip
    server, inside, outside = Peer("a", {"app": "web"}), Peer("a", {"app": "x"}), Peer("b", {"app": "x"})
    assert Policies([], {}).allow(inside, server, 80)
    assert not Policies([deny], {}).allow(outside, server, 80)
    both = Policies([deny, web], {})
    assert both.allow(outside, server, 85)
    assert not both.allow(outside, server, 91)
    assert not both.allow(outside, server, 85, "UDP")
    assert not both.allow(inside, server, 85)  # not let out
    assert not both.allow(Peer("b"), server, 85)
