"""Rendered teams: every folder renders, quotas add up, and nobody reads, changes or reaches another team."""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from platform_sdk.config.cluster import ClusterSpec, bytes_of
from platform_sdk.config.document import read_as
from platform_sdk.config.service import ServiceSpec
from platform_sdk.kubeflow.training_job import pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.description import LABEL_PRIORITY, Sidecar
from tests.kubeflow.crds import check
from tests.kubeflow.policies import Peer, Policies
from tests.teams.files import MANIFESTS, Item, contents, kustomized, render

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

# No shrinking: an example takes a second.
RANDOM = settings(
    max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
SERVICES = "hopforge-services"
PUBLISHED = ("kueue.x-k8s.io", "kubeflow.org")  # groups whose schemas tests/kubeflow/crds.py reads


def the(items: tuple[Item, ...], kind: str, name: str, namespace: str | None = None) -> Item:
    [found] = [
        item
        for item in items
        if item["kind"] == kind and item["metadata"]["name"] == name and item["metadata"].get("namespace") == namespace
    ]
    return found


@RANDOM
@given(contents())
def test_quotas_of_teams_add_up_to_their_pools(content: Item) -> None:
    with TemporaryDirectory() as folder:
        render(content, Path(folder))
        items = kustomized(Path(folder))
    nominal: dict[tuple[str, str], float] = defaultdict(float)
    for name, team in content["teams"].items():
        spec = the(items, "ClusterQueue", name)["spec"]
        assert spec["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": name}}
        [group] = spec["resourceGroups"]
        quotas = {
            (flavor["name"], resource["name"]): resource
            for flavor in group["flavors"]
            for resource in flavor["resources"]
        }
        # Kueue refuses a queue in which a flavor leaves a resource out, or has another order.
        assert all([r["name"] for r in flavor["resources"]] == group["coveredResources"] for flavor in group["flavors"])
        limit: dict[str, int] = defaultdict(int)
        for pool, share in team["gpus"].items():
            own = content["pools"][pool]
            for field, count in (("nominalQuota", "nominal"), ("borrowingLimit", "borrow"), ("lendingLimit", "lend")):
                assert quotas[pool, own["resource"]][field] == str(share[count])
                assert bytes_of(quotas[pool, "cpu"][field]) == share[count] * own["per_gpu"]["cpu"]
                memory = share[count] * bytes_of(own["per_gpu"]["memory"])
                assert bytes_of(quotas[pool, "memory"][field]) == memory
            limit[own["resource"]] += share["nominal"] + share["borrow"]
        for (pool, resource), quota in quotas.items():
            nominal[pool, resource] += bytes_of(quota["nominalQuota"])
        hard = the(items, "ResourceQuota", "team", name)["spec"]["hard"]
        assert {key: hard.get(f"requests.{key}") for key in limit if key != "cpu"} == {
            key: str(value) for key, value in limit.items() if key != "cpu"
        }
        # Steps find room beside all that the queue may admit.
        assert int(hard["requests.cpu"]) > sum(
            (share["nominal"] + share["borrow"]) * content["pools"][pool]["per_gpu"]["cpu"]
            for pool, share in team["gpus"].items()
        )
        volume = the(items, "PersistentVolumeClaim", "workspace", name)["spec"]["resources"]["requests"]["storage"]
        assert bytes_of(volume) <= bytes_of(hard["requests.storage"])
    for (pool, resource), total in nominal.items():
        own = content["pools"][pool]
        if resource == own["resource"]:
            assert total <= own["count"]


@RANDOM
@given(contents())
def test_no_team_reads_changes_or_reaches_another(content: Item) -> None:
    with TemporaryDirectory() as folder:
        files = render(content, Path(folder))
        items = kustomized(Path(folder))
    auditors = set(content.get("auditors", ()))
    members = {
        name: {user: role for role, users in team["members"].items() for user in users}
        for name, team in content["teams"].items()
    }
    for item in items:
        if item["kind"] == "RoleBinding" and (home := item["metadata"]["namespace"]) in members:
            for subject in item["subjects"]:
                if subject["kind"] == "ServiceAccount":
                    assert subject["namespace"] == home
                    continue
                user, role = subject["name"], item["roleRef"]["name"]
                assert user in members[home] or user in auditors
                if role != "queue-reader":
                    assert role == f"kubeflow-{members[home].get(user, 'view')}"
        if item["kind"] == "AuthorizationPolicy":
            [rule] = item["spec"]["rules"]
            [user] = rule["when"][0]["values"]
            assert user in members[item["metadata"]["namespace"]] or user in auditors
            assert rule["from"]  # a policy that names no source trusts a header that any pod may send
        if item["kind"] == "ClusterRoleBinding":
            assert item["roleRef"]["name"] == "hopforge-queues"
        if item["kind"] == "ClusterRole":
            assert {verb for rule in item["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
            # No workloads or pods, which are other teams' jobs.
            assert not {r for rule in item["rules"] for r in rule["resources"]} & {"workloads", "pods", "secrets"}
        if item["kind"] == "Namespace" and item["metadata"]["name"] in members:
            assert item["metadata"]["labels"]["hopforge.dev/runs"] == "true"  # admission policies hold in it
            assert item["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    _check_connections(content, items)
    served = ServiceSpec.model_validate(_service(files))
    for collection in served.collections:
        assert collection.teams  # without teams it would be everybody's
        assert set(collection.teams) == {
            name for name, team in content["teams"].items() if collection.name in team.get("collections", ())
        }
    for name in members:
        settings = ClusterSpec.model_validate(_yaml(files[f"teams/{name}/cluster.yaml"]))
        assert settings.job.queue == the(items, "LocalQueue", "default", name)["metadata"]["name"]
        assert settings.job.priority in content["priorities"]
        assert settings.environment["MLFLOW_WORKSPACE"] == name
    assert not [item for item in items if item["kind"] == "Secret"]


@RANDOM
@given(contents())
def test_mlflow_keeps_the_people_and_runs_of_teams_apart(content: Item) -> None:
    with TemporaryDirectory() as folder:
        render(content, Path(folder))
        items = kustomized(Path(folder))
    [job] = [i for i in items if i["kind"] == "Job" and i["metadata"]["name"] == "mlflow-users"]
    [volume] = [one for one in job["spec"]["template"]["spec"]["volumes"] if one["name"] == "teams"]
    text = the(items, "ConfigMap", volume["configMap"]["name"], SERVICES)["data"]["teams.json"]
    with TemporaryDirectory() as folder:
        (Path(folder) / "teams.json").write_text(text)
        users = _users_job().read_teams(Path(folder) / "teams.json")
    expected = {}
    for name, team in content["teams"].items():
        expected[name, "hopforge-runs"] = {name}
        expected[name, "hopforge-members"] = {user for users in team["members"].values() for user in users}
        expected[name, "hopforge-auditors"] = set(content.get("auditors", ()))
    assert users == expected


def _users_job() -> Any:
    spec = spec_from_file_location("mlflow_teams", MANIFESTS / "base/services/mlflow/teams.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_URL", "http://mlflow:5000")
        patch.setenv("ADMIN_PASSWORD", "unused")
        spec.loader.exec_module(module)
    return module


@RANDOM
@given(contents())
def test_gpus_of_every_pool_are_reached_through_the_own_queue_only(content: Item) -> None:
    pytest.importorskip("cel", reason="the extra [dev] is not installed")
    from tests.kubeflow.admission import JOB, Request, policies, refusals_of

    with TemporaryDirectory() as folder:
        files = render(content, Path(folder))
        items = kustomized(Path(folder))
    rules = policies(items)
    for name in content["teams"]:
        annotations = the(items, "Namespace", name)["metadata"]["annotations"]
        allowed = {
            "namespace": name,
            "priorities": annotations["hopforge.dev/priorities"],
            "allowed_secrets": annotations["hopforge.dev/run-secrets"],
        }
        cluster = ClusterSpec.model_validate(_yaml(files[f"teams/{name}/cluster.yaml"]))
        sidecar = None if cluster.job.sampler is None else Sidecar(cluster.job.sampler, "/workspace/served.json")
        job = replace(JOB, namespace=name, spec=cluster.job, workspace=cluster.workspace, sidecar=sidecar)
        asks = {cluster.job.resources.gpu_resource} if cluster.job.resources.gpus else set()
        for backend in (pytorchjob, trainjob):
            own = backend.render(job)
            assert refusals_of(rules, Request(own, **allowed)) == []
            labels = own["metadata"]["labels"]
            for priority in content["priorities"]:
                labels[LABEL_PRIORITY] = priority
                taken = priority in annotations["hopforge.dev/priorities"].split(",")
                assert (refusals_of(rules, Request(own, **allowed)) == []) == taken
            bare = backend.render(replace(job, spec=cluster.job.model_copy(update={"queue": None, "priority": None})))
            said = refusals_of(rules, Request(bare, **allowed))
            assert [message.split(":")[0] for message in said] == ["a job that asks for GPUs names a queue"] * bool(
                asks or (backend is trainjob and sidecar is not None)
            )
    for resource in {pool["resource"] for pool in content["pools"].values()}:
        container = {"name": "c", "resources": {"limits": {resource: "1"}}}
        pod = {"kind": "Pod", "metadata": {}, "spec": {"containers": [container]}}
        said = refusals_of(rules, Request(pod, user="ann@example.com", namespace=next(iter(content["teams"]))))
        assert any("asks for GPUs" in message for message in said) == (resource != "cpu")


def _check_connections(content: Item, items: tuple[Item, ...]) -> None:
    labels = {i["metadata"]["name"]: i["metadata"]["labels"] for i in items if i["kind"] == "Namespace"}
    policies = Policies(items, labels)
    run = {"hopforge.dev/task": "r", "workflows.argoproj.io/workflow": "w"}
    peers = {name: Peer(name, run) for name in content["teams"]}
    retriever = Peer(SERVICES, {"app.kubernetes.io/name": "retriever"})
    for name, peer in peers.items():
        assert policies.allow(peer, retriever, 8080)
        for other, target in peers.items():
            for port in (80, 443, 8000, 8080, 29500, 40000):
                assert policies.allow(peer, target, port) == (name == other and port in (29500, 40000))
        allowed = bool(content["teams"][name].get("internet"))
        assert policies.allow(peer, Peer(None, address="203.0.113.9"), 443) == allowed
        assert not policies.allow(peer, Peer(None, address="192.0.2.1"), 443)


def _service(files: dict[str, str]) -> Item:
    return _yaml(files["cluster/service.yaml"])


def _yaml(text: str) -> Item:
    from ruamel.yaml import YAML

    return dict(YAML(typ="safe").load(text))


def _shuffled(content: Item) -> Item:
    """Return the same teams in another order: mappings reversed, and lists in which no order is meant."""
    turned = {
        key: dict(reversed(value.items())) if isinstance(value, dict) else value
        for key, value in reversed(content.items())
    }
    turned["teams"] = {
        name: dict(reversed(team.items()))
        | {
            "members": team["members"] | {role: team["members"][role][::-1] for role in ("edit", "view")},
            "gpus": dict(reversed(team["gpus"].items())),
            "priorities": team["priorities"] | {"allowed": team["priorities"]["allowed"][::-1]},
        }
        | {key: team[key][::-1] for key in ("collections", "secrets", "internet") if key in team}
        for name, team in turned["teams"].items()
    }
    if "auditors" in turned:
        turned["auditors"] = turned["auditors"][::-1]
    return turned


@RANDOM
@given(contents())
def test_order_of_the_file_changes_no_byte(content: Item) -> None:
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        assert render(content, Path(one)) == render(_shuffled(content), Path(other))


@settings(RANDOM, max_examples=4)
@given(contents())
def test_every_folder_renders_and_every_object_fits_its_schema(content: Item) -> None:
    with TemporaryDirectory() as text:
        folder = Path(text)
        files = render(content, folder)
        whole = kustomized(folder)
        parts = [kustomized(folder / "cluster")] + [kustomized(folder / f"teams/{name}") for name in content["teams"]]
        profiles = tuple(_yaml(files[f"profiles/{name}.yaml"]) for name in content["teams"])
    key = lambda item: (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])  # noqa: E731
    assert sorted(map(key, whole)) == sorted(key(item) for part in parts for item in part)
    for item in (*whole, *profiles):
        group = item["apiVersion"].partition("/")[0]
        if group in PUBLISHED:
            check(item)
        elif group != "security.istio.io":
            kubernetes_validate.validate(item, "1.32", strict=True)


def test_shipped_example_is_rendered_with_its_sizes(tmp_path: Path) -> None:
    content = _yaml((MANIFESTS / "teams.yaml").read_text())
    render(content, tmp_path)
    job = read_as(ClusterSpec, tmp_path / "teams/search/cluster.yaml").job
    assert (job.resources.gpus, job.resources.cpu, job.resources.memory) == (7, "56", "672Gi")
    assert job.sampler is not None
    assert (job.sampler.resources.gpus, job.sampler.resources.memory) == (1, "96Gi")
    assert read_as(ClusterSpec, tmp_path / "teams/reading/cluster.yaml").job.sampler is None
    owner = _yaml((tmp_path / "profiles/search.yaml").read_text())["spec"]["owner"]
    assert owner == {"kind": "User", "name": "ann@example.com"}
    items = kustomized(tmp_path / "teams/search")
    people = {
        (item["metadata"]["annotations"]["user"], item["metadata"]["annotations"]["role"])
        for item in items
        if item["kind"] == "AuthorizationPolicy"
    }
    assert people == {("bob@example.com", "edit"), ("eve@example.com", "view"), ("carla@example.com", "view")}
    binding = the(items, "RoleBinding", "user-bob-example-com-clusterrole-edit", "search")
    assert binding["metadata"]["annotations"] == {"user": "bob@example.com", "role": "edit"}
