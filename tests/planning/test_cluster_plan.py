"""Plan of a run on a cluster against an API server: dry runs, rights, objects, quota, and failing servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from kubeflow.training import TrainingClient
from kubernetes.client import Configuration
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.kubeflow.training_job.runtime import runtimes
from platform_sdk.planning.checks import distinct
from platform_sdk.planning.cluster import ClusterPlan, plan_on_cluster
from platform_sdk.planning.connection import connected
from platform_sdk.planning.jobs import Place
from tests.planning.plan_server import KUEUE, PlanServer, cluster_queue

HOME = Path(__file__).parents[2]
RECIPE = HOME / "pipelines/arena/mixed-qwen2.5-7b.yaml"
CLUSTER = """\
workspace: {claim: runs}
launcher_image: launcher
service_account: launcher
secrets: {HOPFORGE_LOG_TOKEN: run-access/log-token}
job:
  backend: pytorchjob
  image: trainer
  queue: team
  priority: usual
  resources: {cpu: "8", memory: 64Gi, gpus: 4}
  sampler: {image: sampler, resources: {cpu: "8", memory: 64Gi, gpus: 1}}
  secrets: {HF_TOKEN: hugging-face/token}
"""
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "{url}"}}}}]
contexts: [{{name: test, context: {{cluster: test, user: test, namespace: team-a}}}}]
users: [{{name: test, user: {{token: t}}}}]
"""
SECRETS = "/api/v1/namespaces/team-a/secrets"
CLAIM = "/api/v1/namespaces/team-a/persistentvolumeclaims/runs"
RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
LOCAL_QUEUE = f"{KUEUE}/namespaces/team-a/localqueues/team"


@pytest.fixture
def server() -> Iterator[PlanServer]:
    """A cluster that has everything the run needs, with eight GPUs for its queue."""
    with PlanServer() as made:
        for name in ("run-access", "hugging-face"):
            made.paths[f"{SECRETS}/{name}"] = {"metadata": {"name": name}}
        made.paths[CLAIM] = {"metadata": {"name": "runs"}, "status": {"phase": "Bound"}}
        made.paths[LOCAL_QUEUE] = {"metadata": {"name": "team"}, "spec": {"clusterQueue": "a", "stopPolicy": "None"}}
        made.paths[f"{KUEUE}/workloadpriorityclasses/usual"] = {"metadata": {"name": "usual"}}
        made.add_queue("a", cluster_queue("a", {"nominalQuota": "8"}))
        made.config_maps["kueue-system/kueue-manager-config"] = {"controller_manager_config.yaml": "{}"}
        yield made


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterSpec:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return read_as(ClusterSpec, tmp_path / "cluster.yaml")


@pytest.fixture
def recipe(cluster: ClusterSpec) -> Recipe:
    return load_recipe(RECIPE, (), cluster.environment)


def planned(recipe: Recipe, cluster: ClusterSpec, server: PlanServer) -> ClusterPlan:
    configuration = Configuration(host=server.url)
    configuration.retries = False
    connection = TrainingClient(client_configuration=configuration)
    return plan_on_cluster(recipe, Place(cluster, "team-a"), connection)


def states(plan: ClusterPlan) -> dict[str, str]:
    return {check.subject: check.state for check in plan.checks}


def test_complete_cluster_passes_every_check_and_creates_nothing(
    recipe: Recipe, cluster: ClusterSpec, server: PlanServer
) -> None:
    plan = planned(recipe, cluster, server)
    assert (plan.problems, plan.notes) == ((), ())
    assert set(states(plan).values()) == {"ok"}
    assert {
        "Secret run-access", "Secret hugging-face", "PersistentVolumeClaim runs", "LocalQueue team",
        "WorkloadPriorityClass usual", "own right to create pytorchjobs",
        "rights of service account launcher to pytorchjobs",
    } <= states(plan).keys()  # fmt: skip
    assert {fit.verdict for fit in plan.fits.values()} == {"now"}
    assert server.objects == {}
    manifests = [job.manifest for job in distinct(plan.jobs)]
    assert server.dry_runs == manifests
    assert len(manifests) == 2  # the evaluations differ in names only


def test_missing_objects_are_problems_with_their_remedies(
    recipe: Recipe, cluster: ClusterSpec, server: PlanServer
) -> None:
    for path in (f"{SECRETS}/hugging-face", CLAIM, LOCAL_QUEUE, f"{KUEUE}/workloadpriorityclasses/usual"):
        del server.paths[path]
    plan = planned(recipe, cluster, server)
    [secret, claim, queue, priority] = plan.problems
    assert "kubectl -n team-a create secret generic hugging-face --from-literal=token=VALUE" in secret
    assert "PersistentVolumeClaim runs: does not exist in team-a" in claim
    assert "LocalQueue team: does not exist in team-a" in queue
    assert "WorkloadPriorityClass usual: does not exist" in priority
    assert {fit.reason for fit in plan.fits.values()} == {"LocalQueue team does not exist"}


def test_secret_values_are_not_requested(recipe: Recipe, cluster: ClusterSpec, server: PlanServer) -> None:
    server.paths[f"{SECRETS}/run-access"]["data"] = {"log-token": "c2VjcmV0"}
    assert "c2VjcmV0" not in planned(recipe, cluster, server).model_dump_json()


def test_runtimes_of_trainjobs_are_those_of_the_cluster_file(
    recipe: Recipe, cluster: ClusterSpec, server: PlanServer
) -> None:
    job = cluster.job.model_copy(update={"backend": "trainjob"})
    cluster = cluster.model_copy(update={"job": job})
    [problem] = planned(recipe, cluster, server).problems
    assert "ClusterTrainingRuntime hopforge-online: does not exist" in problem
    [runtime] = [one for one in runtimes(cluster) if one["metadata"]["name"] == "hopforge-online"]
    server.paths[f"{RUNTIMES}/hopforge-online"] = runtime
    assert planned(recipe, cluster, server).problems == ()
    assert {job.kind for job in planned(recipe, cluster, server).jobs} == {"TrainJob"}
    assert job.sampler is not None
    sampler = job.sampler.model_copy(update={"image": "newer-sampler"})
    changed = cluster.model_copy(update={"job": job.model_copy(update={"sampler": sampler})})
    [problem] = planned(recipe, changed, server).problems
    assert (
        "ClusterTrainingRuntime hopforge-online: the image of container sampler is sampler, not newer-sampler"
        in problem
    )


def test_job_that_the_server_refuses_is_a_problem(recipe: Recipe, cluster: ClusterSpec, server: PlanServer) -> None:
    recorded = json.loads((HOME / "tests/kubeflow/recorded/cluster/pytorchjob-refused.json").read_text())
    message = recorded.get("message") or recorded["answer"]["message"]
    server.refusal = (403, "Forbidden", message)
    plan = planned(recipe, cluster, server)
    assert [problem.endswith(message) for problem in plan.problems] == [True, True]


def test_launcher_without_rights_is_a_problem_and_own_missing_rights_are_not(
    recipe: Recipe, cluster: ClusterSpec, server: PlanServer
) -> None:
    server.denied = {("create", "pytorchjobs"), ("watch", "pytorchjobs")}
    plan = planned(recipe, cluster, server)
    assert states(plan)["own right to create pytorchjobs"] == "unseen"
    [problem] = plan.problems
    assert "service account launcher may not create, watch pytorchjobs in team-a" in problem


def test_objects_that_may_not_be_read_are_no_failure(recipe: Recipe, cluster: ClusterSpec, server: PlanServer) -> None:
    server.forbidden = {*server.paths, f"{KUEUE}/clusterqueues", "/apis/authorization.k8s.io/v1/subjectaccessreviews"}
    plan = planned(recipe, cluster, server)
    assert plan.works
    unseen = [check for check in plan.checks if check.state == "unseen"]
    assert len(unseen) == 6
    assert all(check.message.count("\n") == 0 and "HTTP 403" in check.message for check in unseen)
    [fit] = {*(fit.model_dump_json() for fit in plan.fits.values())}
    assert '"unknown"' in fit


def test_job_above_nominal_and_borrowing_never_fits(recipe: Recipe, cluster: ClusterSpec, server: PlanServer) -> None:
    server.add_queue("a", cluster_queue("a", {"nominalQuota": "2", "borrowingLimit": "2"}, cohort="c"))
    server.add_queue("b", cluster_queue("b", {"nominalQuota": "8"}, cohort="c"))
    plan = planned(recipe, cluster, server)
    [problem] = plan.problems
    assert problem.startswith("online: never fits: ClusterQueue a: the job needs 5 of nvidia.com/gpu, but 4 are")
    verdicts = {job.step: plan.fits[job.name].verdict for job in plan.jobs}
    assert verdicts == {"eval-start": "now", "online": "never", "eval-final": "now"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stopPolicy": "Hold"}, "ClusterQueue a is stopped (Hold)"),
        ({"queueingStrategy": "StrictFIFO"}, "3 other jobs are pending in ClusterQueue a, which admits in order"),
    ],
)
def test_stopped_and_strict_queues_make_jobs_wait(
    change: dict[str, Any], reason: str, recipe: Recipe, cluster: ClusterSpec, server: PlanServer
) -> None:
    queue = cluster_queue("a", {"nominalQuota": "8"}, **change)
    queue["status"]["pendingWorkloads"] = 3
    server.add_queue("a", queue)
    plan = planned(recipe, cluster, server)
    assert plan.works
    assert {(fit.verdict, fit.reason) for fit in plan.fits.values()} == {("waits", reason)}


@pytest.mark.parametrize(
    ("status", "path", "part"),
    [
        (503, "/", "the checks on the cluster are incomplete: the API server answered 503"),
        (401, "/", "the checks on the cluster are incomplete: the API server refuses: HTTP 401"),
        (401, "/apis/authorization.k8s.io", "log in again, or set KUBECONFIG"),
        (503, KUEUE, "the checks on the cluster are incomplete: the API server answered 503"),
    ],
)
def test_server_that_does_not_serve_gives_one_note(
    status: int, path: str, part: str, recipe: Recipe, cluster: ClusterSpec, server: PlanServer
) -> None:
    server.fault = lambda method, asked: (status, "no") if asked.startswith(path) else None
    plan = planned(recipe, cluster, server)
    assert plan.works
    [note] = plan.notes
    assert part in note


def test_cluster_with_another_version_of_kueue_gives_one_sentence(
    recipe: Recipe, cluster: ClusterSpec, server: PlanServer
) -> None:
    server.paths = {path: item for path, item in server.paths.items() if not path.startswith(KUEUE)}
    server.fault = lambda method, path: (404, "NotFound") if path.startswith(KUEUE) else None
    plan = planned(recipe, cluster, server)
    [queue] = [check for check in plan.checks if check.subject == "LocalQueue team"]
    assert (queue.state, "does not serve kueue.x-k8s.io/v1beta2" in queue.message) == ("unseen", True)


def test_objects_of_an_unexpected_form_are_unknown(recipe: Recipe, cluster: ClusterSpec, server: PlanServer) -> None:
    server.add_queue("a", {"metadata": {"name": "a"}, "spec": {"resourceGroups": [{"flavors": [{"kind": 1}]}]}})
    assert {fit.verdict for fit in planned(recipe, cluster, server).fits.values()} == {"unknown"}


def test_command_reads_the_namespace_of_the_current_context(
    cluster: ClusterSpec, server: PlanServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(url=server.url))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    shown = CliRunner().invoke(app, ["plan", str(RECIPE), "--cluster", str(tmp_path / "cluster.yaml")])
    assert shown.exit_code == 0, shown.output
    assert "online      PyTorchJob  1     5     16   128.0 GiB  team   usual     now" in shown.stdout
    assert "✓ PersistentVolumeClaim runs\n" in shown.stdout
    assert {path for _, path in server.requests if "namespaces" in path and "team-a" not in path} == {
        "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"
    }


@pytest.mark.parametrize("content", [b"a: [b", b"text", b"\xff\xfe"], ids=["no YAML", "no mapping", "no UTF-8"])
def test_damaged_kubeconfig_gives_one_note(
    cluster: ClusterSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    (tmp_path / "kubeconfig").write_bytes(content)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    _, connection, note = connected(cluster, None)
    assert connection is None
    assert note.startswith("only the cluster file was checked: KUBECONFIG cannot be read: ")


def test_unreachable_server_gives_one_note(
    cluster: ClusterSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(url="http://127.0.0.1:9"))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    shown = CliRunner().invoke(app, ["plan", str(RECIPE), "--cluster", str(tmp_path / "cluster.yaml")])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("cannot be reached") == 1


def test_images_are_looked_for_on_the_nodes(recipe: Recipe, cluster: ClusterSpec, server: PlanServer) -> None:
    server.paths["/api/v1/nodes"] = {"items": [{"status": {"images": [{"names": ["docker.io/trainer"]}]}}]}
    messages = {check.subject: check.message for check in planned(recipe, cluster, server).checks}
    assert messages["image trainer"] == "on 1 of 1 nodes"
    assert messages["image launcher"] == "on no node yet, so its first pod pulls it"
    placeholder = cluster.model_copy(update={"launcher_image": "registry.example/hopforge/launcher:0.1.0"})
    [problem] = planned(recipe, placeholder, server).problems
    assert (
        "image registry.example/hopforge/launcher:0.1.0: is on no node, and registry.example is a placeholder"
        in problem
    )
