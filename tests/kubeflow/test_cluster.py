"""A pipeline compiled for a cluster: what every step gets there, and how a run begins and ends."""

from __future__ import annotations

import ast
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kfp import components, local
from kubernetes.client import Configuration
from ruamel.yaml import YAML

pytest.importorskip("kfp.kubernetes", reason="the extra [cluster] is not installed")

from kubeflow.training import TrainingClient

from platform_sdk.config.cluster import CLUSTER, ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.source import ConfigError
from platform_sdk.kubeflow import lifecycle
from platform_sdk.kubeflow.compile import compile_recipe, ir_text, write_ir
from platform_sdk.kubeflow.lifecycle import begin_run, end_run, enter_cluster, reopen, settings_digest
from platform_sdk.kubeflow.packing import begun_with, packed, unpacked
from platform_sdk.kubeflow.training_job import api, here
from platform_sdk.kubeflow.training_job.here import job_runner
from platform_sdk.processes.launch import StepProcesses
from platform_sdk.tracking import manifest
from platform_sdk.tracking.journal import STATE_EVENTS, read, run_file
from tests.kubeflow.pods import Pods
from tests.kubeflow.toy import PIPELINE, write_toy
from tests.kubeflow.training_job.api_server import ApiServer
from tests.refusals import refused

HOME = Path(__file__).parents[2]
RECORDED = HOME.parent / "shared/kubeflow/cluster/pod-kfp-step.json"
SHIPPED = HOME / "pipelines/cluster.yaml"
FORM = {
    "f1_run_seed", "f2_run_rate", "f3_run_mode", "d1_training_batch", "d2_training_normalization", "submitted_by",
}  # fmt: skip
Documents = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def cluster() -> ClusterSpec:
    return read_as(ClusterSpec, SHIPPED)


@pytest.fixture
def compiled(tmp_path: Path, cluster: ClusterSpec) -> Documents:
    path = tmp_path / "toy.yaml"
    write_ir(compile_recipe(load_recipe(write_toy(tmp_path), ["seed=7"]), cluster), path)
    components.load_component_from_file(str(path))
    pipeline, platform = (document for document in YAML(typ="safe").load_all(path.read_text()) if document)
    return pipeline, platform


def test_every_step_gets_the_workspace_and_the_secrets(compiled: Documents, cluster: ClusterSpec) -> None:
    pipeline, platform = compiled
    executors = pipeline["deploymentSpec"]["executors"]
    placed = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(executors) == set(placed) > {"exec-begin", "exec-end"}
    for name, executor in executors.items():
        container = executor["container"]
        assert container["image"] == "registry.example/hopforge/launcher:0.1.0"
        task = name.removeprefix("exec-")
        assert container["env"] == [{"name": "HOPFORGE_TASK", "value": task}]
        [mount] = placed[name]["pvcMount"]
        assert (mount["constant"], mount["mountPath"]) == ("workspace", "/workspace")
        given = {
            one["envVar"]: f"{secret['secretName']}/{one['secretKey']}"
            for secret in placed[name]["secretAsEnv"]
            for one in secret["keyToEnv"]
        }
        assert given == cluster.secrets
        assert placed[name]["podMetadata"]["labels"] == {"hopforge.dev/task": task, "sidecar.istio.io/inject": "false"}
        # The namespace's standard asks for it, and KFP leaves it to the image, of whose user Kubernetes takes the uid.
        assert placed[name]["securityContext"] == {"runAsNonRoot": True, "runAsGroup": "10001"}


def test_step_with_cores_in_any_unit_has_them_as_a_number(tmp_path: Path, cluster: ClusterSpec) -> None:
    for cpu, cores in {"0.1k": 100.0, "250m": 0.25, "9m": 0.009, "2": 2.0}.items():
        own = cluster.model_copy(update={"launcher": cluster.launcher.model_copy(update={"cpu": cpu})})
        compiled = compile_recipe(load_recipe(write_toy(tmp_path)), own)
        executors = compiled.specification["deploymentSpec"]["executors"].values()
        limits = [executor["container"]["resources"] for executor in executors]
        assert {(one["cpuLimit"], one["resourceCpuLimit"]) for one in limits} == {(cores, cpu)}


@pytest.fixture
def environment() -> Iterator[None]:
    """Restore the environment variables that a step sets in its process."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_steps_enter_the_cluster_that_the_run_was_compiled_for(
    tmp_path: Path, cluster: ClusterSpec, environment: None
) -> None:
    os.environ.pop("HOPFORGE_CACHE", None)
    recipe = load_recipe(write_toy(tmp_path))
    local_store = cluster.environment | {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    queued = cluster.job.model_copy(update={"queue": "default"})
    own = {"environment": local_store, "job": queued, "pipelines_url": "https://kubeflow.example/pipeline/"}
    place = cluster.model_copy(update=own)
    os.environ["MLFLOW_WORKSPACE"] = "search"
    begin_run(tmp_path / "run", unpacked(packed(begun_with(recipe, place))), {})
    os.environ.pop(CLUSTER)
    os.environ["HOPFORGE_CACHE"] = "/elsewhere"
    enter_cluster(tmp_path / "run")
    assert ClusterSpec.model_validate_json(os.environ[CLUSTER]) == place
    assert os.environ["HF_HOME"] == place.environment["HF_HOME"]
    assert os.environ["HOPFORGE_CACHE"] == "/elsewhere"  # the pod's own comes first
    [tags] = [event["tags"] for event in read(run_file(tmp_path / "run"))[0] if event["event"] == "tags"]
    place_of_run = {name: tags[f"hopforge.{name}"] for name in ("team", "queue", "pipelines_run", "pipelines_url")}
    assert place_of_run == {
        "team": "search", "queue": "default", "pipelines_run": "run",
        "pipelines_url": "https://kubeflow.example/pipeline/#/runs/details/run",
    }  # fmt: skip


def test_start_records_images_account_and_submitter_from_the_pod(
    tmp_path: Path, cluster: ClusterSpec, environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod is one that a real cluster recorded."""
    if not RECORDED.is_file():
        pytest.skip("the recorded objects of a cluster are not beside this checkout")
    pod = json.loads(RECORDED.read_text())
    (tmp_path / "namespace").write_text("kubeflow\n")
    for module in (here, lifecycle):
        monkeypatch.setattr(module, "NAMESPACE_FILE", tmp_path / "namespace")
    monkeypatch.setenv("KFP_POD_NAME", pod["metadata"]["name"])
    with ApiServer() as server:
        server.pods[pod["metadata"]["name"]] = pod
        configuration = Configuration(host=server.url)
        configuration.retries = False
        monkeypatch.setattr(api, "connect", lambda: TrainingClient(client_configuration=configuration))
        local_store = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
        recipe = load_recipe(write_toy(tmp_path))
        pods = Pods(tmp_path, recipe, cluster.model_copy(update={"environment": local_store}))
        pods.begin(submitted_by="ann")
        end_run(pods.run_dir, "FAILED")
        reopen(pods.run_dir)
    start, _ = manifest.read(pods.run_dir)  # the retry starts equally, which adds no entry
    digest = "sha256:1ac864f1910fba4f096581af4fddaed39ad0455e0b8e18fe6d7deabb3b865184"
    assert start.images["localhost/hopforge/launcher:0.1.0"] == digest
    expected = {
        "namespace": "kubeflow", "account": pod["spec"]["serviceAccountName"], "submitted_by": "ann",
        "pipelines_run": "1234",
    }  # fmt: skip
    assert {name: start.origin.get(name) for name in expected} == expected
    assert start.seeds == {"seed": recipe.parameters["seed"]}
    [tags] = [event["tags"] for event in read(run_file(pods.run_dir))[0] if event["event"] == "tags"]
    assert tags["mlflow.user"] == "ann"


def test_run_has_a_first_step_and_a_last_one(compiled: Documents) -> None:
    pipeline, _ = compiled
    form = pipeline["root"]["inputDefinitions"]["parameters"]
    assert set(form) == FORM
    tasks = pipeline["root"]["dag"]["tasks"]
    assert tasks["end"]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    [inner] = [pipeline["components"][name] for name in pipeline["components"] if name.startswith("comp-exit-handler")]
    steps = inner["dag"]["tasks"]
    assert all("begin" in steps[name]["dependentTasks"] for name in set(steps) - {"begin"})
    given = steps["begin"]["inputs"]["parameters"]
    assert set(given) == {"run_id", "run_name", "workspace", "recipe", *FORM}
    assert all("componentInputParameter" in given[name] for name in FORM)
    for task in (steps["begin"], tasks["end"]):
        assert not task.get("cachingOptions", {}).get("enableCache")


def test_the_form_has_texts_defaults_and_choices(compiled: Documents) -> None:
    form = compiled[0]["root"]["inputDefinitions"]["parameters"]
    assert form["f1_run_seed"] == {
        "parameterType": "NUMBER_INTEGER",
        "defaultValue": 7.0,
        "isOptional": True,
        "description": "Of everything. Setting: seed",
    }
    assert form["f2_run_rate"]["description"] == "A rate (at least 0, at most 1). Setting: rate"
    assert form["f3_run_mode"]["literals"] == ["well", "slow", "user-error", "bug", "killed"]
    assert form["d2_training_normalization"]["literals"] == ["token", "sequence"]
    assert form["d1_training_batch"]["defaultValue"] == 3.0
    assert "Examples per optimiser step" in form["d1_training_batch"]["description"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: ClusterSpec) -> ClusterSpec:
    """A cluster whose workspace is on this machine, with an MLflow store of its own."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setattr("platform_sdk.kubeflow.pod.TERMINATION_LOG", tmp_path / "termination-log")
    workspace = cluster.workspace.model_copy(update={"path": str(tmp_path)})
    return cluster.model_copy(update={"workspace": workspace, "environment": {}})


@pytest.mark.filterwarnings("ignore:.*local runner:UserWarning", "ignore:.*base image:RuntimeWarning")
def test_form_values_reach_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: ClusterSpec) -> None:
    """The pipeline for a cluster, run here: two runs with different values, each in a directory of its own."""
    compiled = compile_recipe(load_recipe(write_toy(tmp_path), ["iterations=1", "seed=7"]), place)
    pipeline = components.load_component_from_text(ir_text(compiled))
    monkeypatch.delenv(CLUSTER, raising=False)
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "kfp"))
    found = {}
    for seed, size in ((8, 5), (9, 6)):
        pipeline(f1_run_seed=seed, d1_training_batch=size, d2_training_normalization="sequence")
        [run_dir] = set((tmp_path / "runs").iterdir()) - set(found)
        found[run_dir] = (seed, size)
    for run_dir, (seed, size) in found.items():
        drawn, rate, spec = ast.literal_eval((run_dir / "make.txt").read_text())
        assert (drawn, rate, spec["batch_size"], spec["normalization"], spec["lora"]) == (
            seed, 0.5, size, "sequence", None
        )  # fmt: skip
        assert (run_dir / "use.txt").read_text().splitlines() == [
            f"iteration-01 1 0.5 d{seed} d{seed}", f"last 9 1.0 d{seed}/1 ",
        ]  # fmt: skip
        resolved = json.loads((run_dir / "recipe.json").read_text())["parameters"]
        assert (resolved["seed"], resolved["spec"]["batch_size"], resolved["iterations"]) == (seed, size, 1)
        assert states(run_dir)[-1] == "FINISHED"
    with pytest.raises(RuntimeError, match="begin"):
        pipeline(d1_training_batch=0)
    assert len(list((tmp_path / "runs").iterdir())) == 2  # no step ran with what is not allowed


def states(run_dir: Path) -> list[str]:
    """Return how the run's state changed, as its journal has it."""
    return [event.get("status", "RUNNING") for event in read(run_file(run_dir))[0] if event["event"] in STATE_EVENTS]


@pytest.fixture
def pods(tmp_path: Path, place: ClusterSpec) -> Pods:
    return Pods(tmp_path, load_recipe(write_toy(tmp_path)))


def test_form_values_are_recorded_in_the_run(pods: Pods, tmp_path: Path) -> None:
    pods.begin(f1_run_seed=8, f2_run_rate=0.25, d1_training_batch=4)
    resolved = json.loads((pods.run_dir / "recipe.json").read_text())
    here = load_recipe(tmp_path / "pipelines/toy/small.yaml", ["seed=8", "rate=0.25", "spec.batch_size=4"])
    assert resolved == here.resolved()  # the same as on one machine
    with pytest.raises(SystemExit):
        pods.begin(f1_run_seed=9, f2_run_rate=0.25, d1_training_batch=4)


def test_form_sets_the_number_of_iterations(tmp_path: Path, place: ClusterSpec) -> None:
    pipeline = PIPELINE.replace("{seed: seed,", "{iterations: iterations,")
    for count in (0, 3):  # fewer and more than compiled
        folder = tmp_path / str(count)
        pods = Pods(folder, load_recipe(write_toy(folder, pipeline=pipeline), ["iterations=2"]))
        [field] = [field for field in pods.recipe.form if field.setting == "iterations"]
        pods.begin(**{field.name: count})
        pods.all(place)
        used = [line.split()[0] for line in (pods.run_dir / "use.txt").read_text().splitlines()]
        assert used == [*(f"iteration-{n:02d}" for n in range(1, count + 1)), "last"]
        assert states(pods.run_dir) == ["RUNNING", "FINISHED"]


@pytest.mark.parametrize(
    ("state", "terminated", "expected"),
    [("SUCCEEDED", None, "FINISHED"), ("FAILED", None, "FAILED"), ("FAILED", False, "FAILED"),
     ("FAILED", True, "KILLED"), ("RUNNING", None, "KILLED")],
)  # fmt: skip
def test_last_step_ends_the_run_as_its_steps_ended(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, state: str, terminated: bool | None, expected: str
) -> None:
    """A cancelled run's exit task is told RUNNING; a terminated workflow says so in its specification."""
    monkeypatch.setattr("platform_sdk.kubeflow.pod.was_terminated", lambda: terminated)
    pods.begin()
    pods.end(state)
    assert states(pods.run_dir) == ["RUNNING", expected]


def test_retried_run_runs_again_and_is_closed_without_the_exit_task(
    pods: Pods, tmp_path: Path, place: ClusterSpec
) -> None:
    """Kubeflow retries from the failed step on, and does not repeat an exit task that has succeeded."""
    pods.begin(f3_run_mode="user-error")
    (tmp_path / "termination-log").touch()
    with pytest.raises(SystemExit):
        pods.step("make")
    assert (tmp_path / "termination-log").read_text() == "the data are wrong;\nmend them"
    pods.end("FAILED")
    assert states(pods.run_dir)[-1] == "FAILED"
    plan = pods.run_dir / "plan.json"
    plan.write_text(plan.read_text().replace("user-error", "well"))  # as if the cause had been fixed
    with pytest.raises(SystemExit):
        pods.step("make")
    assert "was altered since the step begin wrote it" in (tmp_path / "termination-log").read_text()
    pods.settings = settings_digest(pods.run_dir)
    pods.all(place)
    assert states(pods.run_dir)[-2:] == ["RUNNING", "FINISHED"]


def test_interrupted_step_ends_the_run_as_killed(pods: Pods) -> None:
    pods.begin(f3_run_mode="slow")
    timer = threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pods.step("make")
    assert states(pods.run_dir)[-1] == "KILLED"


def test_fault_of_a_step_is_reported_with_its_reason_first(
    pods: Pods, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods.begin(f3_run_mode="bug")
    with pytest.raises(SystemExit):
        pods.step("make")
    [*_, after] = capsys.readouterr().err.partition("error: ZeroDivisionError: a bug\n")
    assert after.startswith("Traceback")
    with pytest.raises(SystemExit):
        pods.step("score")  # as a component of ``components`` does, whose name is no step's id
    written = capsys.readouterr().err
    assert "error: step score: the run's pipeline has no step of this id; it has make, iterations, last" in written
    assert "Traceback" not in written


def test_invalid_form_values_are_refused_in_one_message(pods: Pods, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pods.begin(f2_run_rate=2, f3_run_mode="wel", d2_training_normalization="both")
    written = capsys.readouterr().err
    for part in ("(rate): must be at most 1, but is 2", "did you mean well?", "(spec.normalization): Input should be"):
        assert part in written
    assert not pods.run_dir.exists()


def test_jobs_are_made_only_in_a_cluster_and_only_of_what_they_can_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: ClusterSpec
) -> None:
    monkeypatch.delenv(CLUSTER, raising=False)
    assert job_runner(tmp_path) is None
    monkeypatch.setenv(CLUSTER, cluster.model_dump_json())
    run = job_runner(tmp_path)
    assert run is not None
    with refused("cluster.outside-workspace"):
        run(StepProcesses("platform_sdk.training", tmp_path / "train-step.json", "train"))


def test_the_cluster_that_is_shown_needs_no_kueue(cluster: ClusterSpec) -> None:
    """The smallest overlay has no Kueue; --queue, or taking the comment signs away, is for those that have."""
    assert (cluster.job.queue, cluster.job.priority) == (None, None)
    queued = SHIPPED.read_text().replace("# queue:", "queue:").replace("# priority:", "priority:")
    job = ClusterSpec.model_validate(YAML(typ="safe").load(queued)).job
    assert (job.queue, job.priority) == ("hopforge", "usual")


def test_invalid_cluster_file_is_refused_with_all_problems(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(SHIPPED.read_text().replace("nodes: 1", "nodes: 0").replace("# queue: hopforge", "que: hopforge"))
    with pytest.raises(ConfigError) as error:
        read_as(ClusterSpec, path)
    places = sorted(problem.field for problem in error.value.problems)
    assert places == ["job.nodes", "job.que"]
    assert all(problem.place.startswith(f"{path}:") for problem in error.value.problems)
