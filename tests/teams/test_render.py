"""Rendered teams: every folder renders, quotas add up, and nobody reads, changes or reaches another team."""

from __future__ import annotations

import compileall
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from platform_sdk.config.cluster import ClusterSpec, bytes_of
from platform_sdk.config.document import read_as
from platform_sdk.config.service import ServiceSpec
from platform_sdk.config.teams import TeamsSpec
from platform_sdk.kubeflow.training_job import pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.description import LABEL_PRIORITY, Sidecar
from platform_sdk.teams.render import rendered
from tests.kubeflow.crds import FOLDER as SCHEMAS
from tests.kubeflow.crds import check, check_builtin
from tests.kubeflow.policies import Peer, Policies
from tests.kubeflow.rendered import containers, pods
from tests.teams.files import CLUSTER, MANIFESTS, Item, contents, kustomized, read, render
from tests.teams.rights import GATEWAY, READ, WRITE, Request, Rights, Subject

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

SERVICES = "hopforge-services"
PUBLISHED = ("kueue.x-k8s.io", "kubeflow.org", "trainer.kubeflow.org")  # groups whose schemas are published


@dataclass(frozen=True)
class Case:
    """A teams file's content, its rendered files, and their objects as kubectl renders them."""

    content: Item
    files: dict[str, str]
    items: tuple[Item, ...]
    """Objects of all folders: of the services and policies, of the teams, and the Profiles and runtimes."""

    @property
    def teams(self) -> Item:
        return dict(self.content["teams"])

    @property
    def members(self) -> dict[str, dict[str, str]]:
        """Role of every member by team and user."""
        return {
            name: {user: role for role, users in team["members"].items() for user in users}
            for name, team in self.teams.items()
        }

    @property
    def auditors(self) -> set[str]:
        return set(self.content.get("auditors", ()))

    def the(self, kind: str, name: str, namespace: str | None = None) -> Item:
        return the(self.items, kind, name, namespace)


def the(items: tuple[Item, ...], kind: str, name: str, namespace: str | None = None) -> Item:
    [found] = [
        item
        for item in items
        if item["kind"] == kind and item["metadata"]["name"] == name and item["metadata"].get("namespace") == namespace
    ]
    return found


def case_of(content: Item) -> Case:
    with TemporaryDirectory() as text:
        # One call of kubectl for all folders: the root's kustomization has those of the teams and of the cluster.
        folder = Path(text, "rendered")
        files = render(content, folder)
        (Path(text) / "kustomization.yaml").write_text("resources: [rendered, rendered/trainer]\n")
        items = kustomized(Path(text))
    profiles = [read(files[f"profiles/{name}.yaml"]) for name in content["teams"]]
    return Case(content, files, (*items, *(item for found in profiles for item in found)))


@pytest.mark.parametrize("examples", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_random_teams_share_gpus_and_nothing_else(examples: int) -> None:
    # No shrinking: an example takes half a second.
    chosen = settings(
        max_examples=examples, deadline=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip

    @chosen
    @given(contents())
    def every_check_passes(content: Item) -> None:
        case = case_of(content)
        for check_case in CHECKS:
            check_case(case)

    every_check_passes()


def test_byte_code_is_no_manifest(tmp_path: Path) -> None:
    """Pip compiles every module of a wheel, as Python does with an imported one."""
    copy = tmp_path / "manifests"
    shutil.copytree(MANIFESTS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    spec = TeamsSpec.model_validate(_yaml((MANIFESTS / "teams.yaml").read_text()))
    expected = rendered(spec, copy, CLUSTER)
    assert compileall.compile_dir(copy / "base", quiet=1)
    assert [*copy.rglob("*.pyc")]
    assert rendered(spec, copy, CLUSTER) == expected


def every_object_fits_its_schema(case: Case) -> None:
    first = min(case.teams)  # the runtimes are large, and those of all teams alike
    for item in case.items:
        if item["kind"] != "ClusterTrainingRuntime" or item["metadata"]["name"].startswith(f"hopforge-{first}"):
            _fits(json.dumps(item, sort_keys=True))


@cache
def _fits(text: str) -> None:
    item = json.loads(text)
    group = item["apiVersion"].partition("/")[0]
    if group in PUBLISHED:
        if SCHEMAS.is_dir():
            check(item)
    elif group != "security.istio.io":
        check_builtin(item)


def every_folder_is_whole(case: Case) -> None:
    names = [(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in case.items]
    assert len(set(names)) == len(names)
    for name in case.teams:
        kinds = {kind for kind, namespace, _ in names if namespace == name}
        assert {"RoleBinding", "NetworkPolicy", "ResourceQuota", "PersistentVolumeClaim", "LocalQueue"} <= kinds
        assert case.the("Profile", name)["spec"]["owner"]["name"] == case.teams[name]["members"]["admin"][0]
        for kept in (case.the("Profile", name), case.the("PersistentVolumeClaim", "workspace", name)):
            assert kept["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] == "Prune=false"
            assert kept["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/prune"] == "disabled"
        assert case.the("ClusterTrainingRuntime", f"hopforge-{name}")


def order_of_the_file_changes_no_byte(case: Case) -> None:
    with TemporaryDirectory() as folder:
        assert render(_shuffled(case.content), Path(folder)) == case.files


# 32 hexadecimal digits that are no image's digest, and the shapes of well-known tokens.
TOKEN = re.compile(
    r"-----BEGIN|\bhf_\w{10}|\bgh[pousr]_\w{20}|\bAKIA[0-9A-Z]{16}|\beyJ[\w-]{8}|(?<!sha256:)\b(?!0f0f)[0-9a-f]{32,}\b"
)


def nothing_holds_a_secret(case: Case) -> None:
    assert not [item for item in case.items if item["kind"] == "Secret"]
    for name, text in case.files.items():
        assert "kind: Secret\n" not in text, name
        assert TOKEN.search(text) is None, name


def quotas_add_up(case: Case) -> None:
    nominal: dict[tuple[str, str], float] = defaultdict(float)
    for name, team in case.teams.items():
        spec = case.the("ClusterQueue", name)["spec"]
        assert spec["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": name}}
        assert spec["preemption"] == {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
        assert spec["cohortName"] == case.the("Cohort", "hopforge")["metadata"]["name"]
        assert case.the("LocalQueue", "default", name)["spec"] == {"clusterQueue": name}
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
            own = case.content["pools"][pool]
            assert case.the("ResourceFlavor", pool)["spec"]["nodeLabels"] == own["nodes"]["labels"]
            for field, count in (("nominalQuota", "nominal"), ("borrowingLimit", "borrow"), ("lendingLimit", "lend")):
                assert quotas[pool, own["resource"]][field] == str(share[count])
                assert bytes_of(quotas[pool, "cpu"][field]) == share[count] * own["per_gpu"]["cpu"]
                memory = share[count] * bytes_of(own["per_gpu"]["memory"])
                assert bytes_of(quotas[pool, "memory"][field]) == memory
            limit[own["resource"]] += share["nominal"] + share["borrow"]
        for (pool, resource), quota in quotas.items():
            nominal[pool, resource] += bytes_of(quota["nominalQuota"])
        hard = case.the("ResourceQuota", "team", name)["spec"]["hard"]
        assert {key: hard.get(f"requests.{key}") for key in limit if key != "cpu"} == {
            key: str(value) for key, value in limit.items() if key != "cpu"
        }
        # Steps find room beside all that the queue may admit.
        assert int(hard["requests.cpu"]) > sum(
            (share["nominal"] + share["borrow"]) * case.content["pools"][pool]["per_gpu"]["cpu"]
            for pool, share in team["gpus"].items()
        )
        volume = case.the("PersistentVolumeClaim", "workspace", name)["spec"]["resources"]["requests"]["storage"]
        assert bytes_of(volume) <= bytes_of(hard["requests.storage"])
        assert (hard["services.loadbalancers"], hard["services.nodeports"]) == ("0", "0")
    for (pool, resource), total in nominal.items():
        own = case.content["pools"][pool]
        if resource == own["resource"]:
            assert total <= own["count"]


RESOURCES = (
    ("", "pods"), ("", "pods/exec"), ("", "pods/log"), ("", "secrets"), ("", "configmaps"), ("", "events"),
    ("", "persistentvolumeclaims"), ("", "serviceaccounts"), ("batch", "jobs"), ("kubeflow.org", "pytorchjobs"),
    ("trainer.kubeflow.org", "trainjobs"), ("argoproj.io", "workflows"), ("kueue.x-k8s.io", "workloads"),
    ("kueue.x-k8s.io", "localqueues"), ("visibility.kueue.x-k8s.io", "localqueues/pendingworkloads"),
    ("mlflow.kubeflow.org", "experiments"), ("mlflow.kubeflow.org", "registeredmodels"),
    ("mlflow.kubeflow.org", "datasets"), ("rbac.authorization.k8s.io", "rolebindings"),
)  # fmt: skip
ACCOUNTS = ("default", "default-editor", "launcher", "reaper", "pipeline-runner")
STRANGER = "stranger@example.com"


def rights_end_at_the_own_team(case: Case) -> None:
    rights = Rights(case.items)
    users = {user for people in case.members.values() for user in people} | case.auditors | {STRANGER}
    subjects = [Subject(user) for user in sorted(users)]
    subjects += [Subject(account, name) for name in case.teams for account in ACCOUNTS]
    for subject in subjects:
        for namespace in (*case.teams, SERVICES, "kubeflow", ""):
            may = {
                (verb, resource)
                for group, resource in RESOURCES
                for verb in (*READ, *WRITE)
                if rights.allow(subject, Request(verb, resource, group, namespace))
            }
            role = case.members.get(namespace, {}).get(subject.name, "") if not subject.namespace else ""
            if not role and subject.name in case.auditors and namespace in case.teams:
                role = "view"
            if subject.namespace == namespace:
                assert not {(verb, resource) for verb, resource in may if resource in ("secrets", "rolebindings")}
            elif not role:
                assert not may, (subject, namespace)
            elif role == "view":
                assert {verb for verb, _ in may} <= set(READ)
                assert "secrets" not in {resource for _, resource in may}
            read = {("get", "pods"), ("list", "workloads"), ("get", "localqueues/pendingworkloads")}
            assert not role or read <= may
            assert (("create", "pytorchjobs") in may) == (
                role in ("admin", "edit") or (subject.namespace == namespace and subject.name in STEPS)
            )
            assert (("create", "rolebindings") in may) == (role == "admin")
            of_mlflow = {verb for verb, resource in may if resource == "experiments"}
            if case.content["mlflow"] == "kubernetes" and (role or subject.namespace == namespace):
                kubeflow_gives = role in ("admin", "edit")
                assert ("update" in of_mlflow) == (kubeflow_gives or subject.name in STEPS)
                assert ("get" in of_mlflow) == (bool(role) or subject.name in STEPS)
        totals = rights.allow(subject, Request("list", "clusterqueues", "kueue.x-k8s.io"))
        assert totals == (not subject.namespace and subject.name != STRANGER)


STEPS = ("default-editor", "launcher")


def gateway_lets_in_the_own_people(case: Case) -> None:
    rights = Rights(case.items)
    users = {user for people in case.members.values() for user in people} | case.auditors | {STRANGER}
    for name, people in case.members.items():
        owner = case.teams[name]["members"]["admin"][0]  # whose policy the Profile's controller makes
        for user in users - {owner}:
            assert rights.lets_in(name, GATEWAY, user) == (user in people or user in case.auditors)
            for other in case.teams:
                assert not rights.lets_in(name, f"cluster.local/ns/{other}/sa/default-editor", user)


def people_are_annotated_as_kubeflow_does(case: Case) -> None:
    for name in case.teams:
        for item in case.items:
            if item["metadata"].get("namespace") == name and item["kind"] == "AuthorizationPolicy":
                binding = case.the("RoleBinding", item["metadata"]["name"], name)
                assert binding["metadata"]["annotations"] == item["metadata"]["annotations"]
                user, role = (item["metadata"]["annotations"][key] for key in ("user", "role"))
                assert binding["subjects"] == [{"apiGroup": RBAC, "kind": "User", "name": user}]
                assert binding["roleRef"]["name"] == f"kubeflow-{role}"


RBAC = "rbac.authorization.k8s.io"


def connections_end_at_the_own_team(case: Case) -> None:
    labels = {i["metadata"]["name"]: i["metadata"]["labels"] for i in case.items if i["kind"] == "Namespace"}
    policies = Policies(case.items, labels)
    run = {"hopforge.dev/task": "r", "workflows.argoproj.io/workflow": "w"}
    peers = {name: Peer(name, run) for name in case.teams}
    kubernetes = case.content["mlflow"] == "kubernetes"
    served = {("retriever", 8080), ("log", 8080), ("sampler", 8000)} | (set() if kubernetes else {("mlflow", 5000)})
    services = [
        (name, Peer(SERVICES, template["metadata"]["labels"]), port["containerPort"])
        for namespace, name, template in pods(case.items)
        if namespace == SERVICES
        for container in containers(template)
        for port in container.get("ports", ())
    ]
    for name, peer in peers.items():
        reached = {(service, port) for service, other, port in services if policies.allow(peer, other, port)}
        assert reached == served
        for _, other, _ in services:
            assert not any(policies.allow(other, peer, port) for port in (80, 8000, 8080, 29500, 40000))
        for other, target in peers.items():
            for port in (80, 443, 8000, 8080, 29500, 40000):
                assert policies.allow(peer, target, port) == (name == other and port in (29500, 40000))
        allowed = bool(case.teams[name].get("internet"))
        assert policies.allow(peer, Peer(None, address="203.0.113.9"), 443) == allowed
        assert not policies.allow(peer, Peer(None, address="192.0.2.1"), 443)
        assert policies.allow(peer, Peer("kubeflow", {"app": "mlflow"}), 5000) == kubernetes
        assert not policies.allow(peer, Peer("default", {}), 5000)


def retriever_and_runs_know_their_team(case: Case) -> None:
    served = ServiceSpec.model_validate(_yaml(case.files["cluster/service.yaml"]))
    for collection in served.collections:
        assert collection.teams  # without teams it would be everybody's
        assert set(collection.teams) == {
            name for name, team in case.teams.items() if collection.name in team.get("collections", ())
        }
    for name in case.teams:
        namespace = case.the("Namespace", name)["metadata"]
        assert namespace["labels"]["hopforge.dev/runs"] == "true"  # admission policies hold in it
        assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        cluster = ClusterSpec.model_validate(_yaml(case.files[f"teams/{name}/cluster.yaml"]))
        assert cluster.job.queue == case.the("LocalQueue", "default", name)["metadata"]["name"]
        assert cluster.job.priority in case.content["priorities"]
        assert cluster.environment["MLFLOW_WORKSPACE"] == name
        assert cluster.pipelines_url == case.content.get("pipelines_url")
        by_account = case.content["mlflow"] == "kubernetes"
        assert ("MLFLOW_TRACKING_PASSWORD" in cluster.secrets) == (not by_account)
        assert cluster.environment.get("MLFLOW_TRACKING_AUTH") == ("kubernetes-namespaced" if by_account else None)
        pool = case.content["pools"][case.teams[name]["job"]["pool"]]
        assert cluster.job.topology == (pool["topology"][-1] if "topology" in pool else None)


def mlflow_keeps_people_and_runs_apart(case: Case) -> None:
    own = [
        item
        for item in case.items
        if item["metadata"]["name"].startswith(("mlflow", "objects")) and item["metadata"].get("namespace") == SERVICES
    ]
    if case.content["mlflow"] == "kubernetes":
        assert own == []
        return
    [job] = [item for item in own if item["kind"] == "Job"]
    [volume] = [one for one in job["spec"]["template"]["spec"]["volumes"] if one["name"] == "teams"]
    text = case.the("ConfigMap", volume["configMap"]["name"], SERVICES)["data"]["teams.json"]
    with TemporaryDirectory() as folder:
        (Path(folder) / "teams.json").write_text(text)
        users = _users_job().read_teams(Path(folder) / "teams.json")
    expected = {}
    for name, people in case.members.items():
        expected[name, "hopforge-runs"] = {name}
        expected[name, "hopforge-members"] = set(people)
        expected[name, "hopforge-auditors"] = case.auditors
    assert users == expected


def test_entry_of_a_password_names_its_user(tmp_path: Path) -> None:
    for entry in ("search", "ann_at_example.com", "look_at_me_at_example.com"):
        (tmp_path / entry).write_text("a-password\n")
    assert _users_job().read_passwords(tmp_path) == dict.fromkeys(
        ("search", "ann@example.com", "look_at_me@example.com"), "a-password"
    )


@cache
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


def gpus_are_reached_through_the_own_queue(case: Case) -> None:
    if not CEL:
        return
    from tests.kubeflow.admission import JOB, Request, policies, refusals_of

    rules = policies(case.items)
    for name in case.teams:
        annotations = case.the("Namespace", name)["metadata"]["annotations"]
        allowed = {
            "namespace": name,
            "priorities": annotations["hopforge.dev/priorities"],
            "allowed_secrets": annotations["hopforge.dev/run-secrets"],
        }
        cluster = ClusterSpec.model_validate(_yaml(case.files[f"teams/{name}/cluster.yaml"]))
        sidecar = None if cluster.job.sampler is None else Sidecar(cluster.job.sampler, "/workspace/served.json")
        job = replace(JOB, namespace=name, spec=cluster.job, workspace=cluster.workspace, sidecar=sidecar)
        asks = {cluster.job.resources.gpu_resource} if cluster.job.resources.gpus else set()
        for backend in (pytorchjob, trainjob):
            own = backend.render(job)
            assert refusals_of(rules, Request(own, **allowed)) == []
            labels = own["metadata"]["labels"]
            for priority in case.content["priorities"]:
                labels[LABEL_PRIORITY] = priority
                taken = priority in annotations["hopforge.dev/priorities"].split(",")
                assert (refusals_of(rules, Request(own, **allowed)) == []) == taken
            bare = backend.render(replace(job, spec=cluster.job.model_copy(update={"queue": None, "priority": None})))
            said = refusals_of(rules, Request(bare, **allowed))
            assert [message.split(":")[0] for message in said] == ["a job with GPUs needs a queue"] * bool(
                asks or (backend is trainjob and sidecar is not None)
            )
        own_people = [next(iter(case.members[name])), f"system:serviceaccount:{name}:default-editor"]
        for resource in sorted({pool["resource"] for pool in case.content["pools"].values()}):
            container = {"name": "c", "resources": {"limits": {resource: "1"}}}
            forged = {"ownerReferences": [{"kind": "Job", "name": "j", "controller": True}]}
            pod = {"kind": "Pod", "metadata": forged, "spec": {"containers": [container]}}
            for user in (*own_people, *sorted(case.auditors)[:1]):
                said = refusals_of(rules, Request(pod, user=user, namespace=name))
                assert any("may create a pod with GPUs" in message for message in said) == (resource != "cpu")


try:
    import cel  # noqa: F401

    CEL = True
except ImportError:  # the extra [dev] is not installed
    CEL = False

CHECKS: tuple[Callable[[Case], None], ...] = (
    every_object_fits_its_schema, every_folder_is_whole, order_of_the_file_changes_no_byte, nothing_holds_a_secret,
    quotas_add_up, rights_end_at_the_own_team, gateway_lets_in_the_own_people, people_are_annotated_as_kubeflow_does,
    connections_end_at_the_own_team, retriever_and_runs_know_their_team, mlflow_keeps_people_and_runs_apart,
    gpus_are_reached_through_the_own_queue,
)  # fmt: skip


def _yaml(text: str) -> Item:
    [item] = read(text)
    return item


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
    namespace = _yaml((tmp_path / "teams/search/namespace.yaml").read_text())
    assert namespace["metadata"]["annotations"]["owner"] == "ann@example.com"  # as Kubeflow's controller compares it
    items = kustomized(tmp_path / "teams/search")
    people = {
        (item["metadata"]["annotations"]["user"], item["metadata"]["annotations"]["role"])
        for item in items
        if item["kind"] == "AuthorizationPolicy"
    }
    assert people == {("bob@example.com", "edit"), ("eve@example.com", "view"), ("carla@example.com", "view")}
    binding = the(items, "RoleBinding", "user-bob-example-com-clusterrole-edit", "search")
    assert binding["metadata"]["annotations"] == {"user": "bob@example.com", "role": "edit"}
