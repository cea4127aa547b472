"""Each rule of the manifests matters: without it, other requests or connections are allowed than must be.

The rules are taken out of the rendered objects one by one. What is allowed without one is compared with what is allowed
with all, on the requests and connections that the other tests of the manifests expect something of.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("cel", reason="the extra [dev] is not installed")
pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from platform_sdk.kubeflow.training_job import indexedjob, pytorchjob, trainjob
from tests.kubeflow.admission import JOB, STEP, Request, refusals_of
from tests.kubeflow.policies import Policies
from tests.kubeflow.rendered import Item, built, the
from tests.kubeflow.test_admission import BAD, SECRET
from tests.kubeflow.test_gpu_sharing import CONTROLLERS, GPU_JOBS, LAUNCHER, OPERATORS, bare, labelled, with_class
from tests.kubeflow.test_network_policies import HOME, NAMESPACES, PORTS, SERVICES, peers_of

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

Place = tuple[str | int, ...]


def without(item: Item, place: Place) -> Item:
    """Return an object without the entry at a place."""
    changed = copy.deepcopy(item)
    inner: Any = changed
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    return changed


def entries(item: Any, *keys: str | int) -> list[Place]:
    """Return the places of a list's entries; none if there is no such list."""
    inner = item
    for key in keys:
        inner = inner.get(key, ()) if isinstance(key, str) else inner[key]
    return [(*keys, number) for number in range(len(inner))]


def connection_rules(policy: Item) -> Iterator[Place]:
    """Yield the rules of a network policy, and the parts of those that have several peers or ports."""
    for way, peers in (("ingress", "from"), ("egress", "to")):
        for rule in entries(policy, "spec", way):
            yield rule
            for parts in (peers, "ports"):
                several = entries(policy, *rule, parts)
                yield from several if len(several) > 1 else ()


@pytest.mark.parametrize(
    ("variant", "own", "redundant"),
    [
        ("overlays/single-node", (HOME, SERVICES), set()),
        # The policy `within` selects every pod, too.
        ("overlays/production", ("hopforge-milvus",), {("hopforge-milvus", "deny-by-default")}),
    ],
)
def test_each_rule_of_the_network_policies_decides_a_connection(
    variant: str, own: tuple[str, ...], redundant: set[tuple[str, str]]
) -> None:
    items, peers = built(variant), peers_of(variant)
    tried = [
        (client, server, port, protocol)
        for client, one in peers.items()
        for server, other in peers.items()
        for port, protocol in (*((port, "TCP") for port in PORTS.get(server, ())), (53, "UDP"), (53, "TCP"))
        if {one.namespace, other.namespace} & set(own) and (port != 53 or server == "dns")
    ]

    def allowed(objects: list[Item], among: set[str]) -> set[tuple[str, str, int, str]]:
        policies = Policies(objects, NAMESPACES)
        return {
            (client, server, port, protocol)
            for client, server, port, protocol in tried
            if {str(peers[client].namespace), str(peers[server].namespace)} & among
            and policies.allow(peers[client], peers[server], port, protocol)
        }

    whole = {namespace: allowed(list(items), {namespace}) for namespace in own}
    idle = []
    for number, item in enumerate(items):
        namespace = item["metadata"].get("namespace", "")
        if item["kind"] != "NetworkPolicy" or namespace not in own:
            continue
        for place in ((), *connection_rules(item)):
            rest = [*items[:number], *([without(item, place)] if place else []), *items[number + 1 :]]
            if allowed(rest, {namespace}) == whole[namespace]:
                idle.append((namespace, item["metadata"]["name"], *place))
    assert "\n".join(map(str, set(idle) - redundant)) == ""


def pods_of(item: Item) -> list[Item]:
    if item["kind"] == "Pod":
        return [item["spec"]]
    if item["kind"] == "Job":
        return [item["spec"]["template"]["spec"]]
    if item["kind"] == "PyTorchJob":
        return [role["template"]["spec"] for role in item["spec"]["pytorchReplicaSpecs"].values()]
    [patch] = item["spec"]["runtimePatches"]
    [job] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    return [job["template"]["spec"]["template"]["spec"]]


def admission_requests() -> Iterator[Request]:
    """Yield requests of every kind that the tests of the policies expect to be admitted or refused."""
    good = [STEP, indexedjob.render(JOB), pytorchjob.render(JOB), trainjob.render(JOB)]
    operators = dict.fromkeys(("Pod", "Job", "PyTorchJob", "TrainJob"), OPERATORS[0])
    for item in good:
        yield Request(item)
        yield Request(item, operation="UPDATE", old=item)
        for _, change, _ in BAD:
            bad = copy.deepcopy(item)
            change(pods_of(bad)[0])
            yield Request(bad, user=operators[item["kind"]])
            if item["kind"] != "Pod":
                yield Request(bad, operation="UPDATE", user=operators[item["kind"]], old=item)
    temporary = copy.deepcopy(STEP)
    temporary["spec"]["ephemeralContainers"] = [{"name": "x", "env": [{"name": "X", "valueFrom": SECRET}]}]
    yield Request(temporary, "/pods/ephemeralcontainers", "UPDATE", old=STEP)
    for change in ({"initializer": {}}, {"podTemplateOverrides": [{"spec": {"serviceAccountName": "admin"}}]}):
        item = trainjob.render(JOB)
        yield Request(item | {"spec": item["spec"] | change})
    for resource in ("apps/deployments", "/pods", "/pods/exec"):
        yield Request(STEP, resource, "CREATE", LAUNCHER)
        yield Request(STEP, resource, "CREATE", "ann@example.com")
    yield Request(bare(priorityClassName="other"), user="ann@example.com")
    for user in ("ann@example.com", CONTROLLERS + "cronjob-controller", *OPERATORS):
        yield Request(bare(containers=[{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]), user=user)
        for job in GPU_JOBS.values():
            yield Request(labelled(job, queue=None), user=user)
    for job in GPU_JOBS.values():
        queued = labelled(job, queue="hopforge", priority="urgent")
        yield Request(queued, priorities="usual", user="ann@example.com")
        child = copy.deepcopy(queued)
        child["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "admitted", "uid": "1", "controller": True}]
        yield Request(child, priorities="urgent", user=LAUNCHER)
        # The garbage collector's change of an object from before the policy.
        changed = copy.deepcopy(queued)
        changed["metadata"]["finalizers"] = []
        yield Request(changed, operation="UPDATE", old=queued, user=CONTROLLERS + "generic-garbage-collector")
    for job in with_class("hopforge-service"):
        yield Request(job, priorities="usual", user="ann@example.com")


def test_each_rule_of_the_admission_policies_decides_a_request() -> None:
    requests = list(admission_requests())
    idle = []
    for item in built("base"):
        if item["kind"] != "ValidatingAdmissionPolicy":
            continue
        whole = [refusals_of([item["spec"]], request) for request in requests]
        rules = [
            *entries(item, "spec", "validations"), *entries(item, "spec", "matchConditions"),
            *entries(item, "spec", "matchConstraints", "resourceRules"),
        ]  # fmt: skip
        for place in rules:
            changed = without(item, place)["spec"]
            if all(refusals_of([changed], request) == answer for request, answer in zip(requests, whole, strict=True)):
                idle.append((item["metadata"]["name"], *place[1:]))
    assert "\n".join(map(str, idle)) == ""


def test_limits_of_a_namespace_bound_all_that_its_pods_share() -> None:
    """A quota without one of these leaves it to the first run that takes it all."""
    hard = the(built("base/team"), "ResourceQuota", "team")["spec"]["hard"]
    assert hard.keys() == {
        "requests.cpu", "limits.cpu", "requests.memory", "limits.memory", "requests.nvidia.com/gpu", "pods",
        "persistentvolumeclaims", "requests.storage", "services.loadbalancers", "services.nodeports",
    }  # fmt: skip
    for variant in ("base/services/retriever", "base"):
        for item in built(variant):
            if item["kind"] == "Namespace":
                labels = item["metadata"]["labels"]
                modes = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
                assert modes.items() <= labels.items()
