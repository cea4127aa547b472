"""A pipeline compiled for a cluster: what every step gets there, and how a run begins and ends."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from kfp import components, dsl, local
from ruamel.yaml import YAML

pytest.importorskip("kfp.kubernetes", reason="the extra [cluster] is not installed")

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.components import read_interface
from platform_sdk.config.document import read_as
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.source import ConfigError
from platform_sdk.kubeflow.compile import compile_recipe, load_component, write_ir
from platform_sdk.kubeflow.component import sent
from platform_sdk.kubeflow.lifecycle import begin_run, begun_with, end_run
from platform_sdk.kubeflow.training_job.here import CLUSTER, job_runner
from platform_sdk.processes.launch import StepProcesses
from platform_sdk.tracking.journal import read, run_file
from tests.kubeflow.toy import PIPELINE, write_toy

HOME = Path(__file__).parents[2]
SHIPPED = HOME / "pipelines/cluster.yaml"
FORM = {"seed", "rate", "mode", "spec_batch_size", "spec_normalization"}
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


def test_every_step_gets_the_workspace_and_knows_its_cluster(compiled: Documents, cluster: ClusterSpec) -> None:
    pipeline, platform = compiled
    executors = pipeline["deploymentSpec"]["executors"]
    placed = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(executors) == set(placed) > {"exec-begin", "exec-end"}
    for name, executor in executors.items():
        container = executor["container"]
        assert container["image"] == "registry.example/hopforge/launcher:0.1.0"
        variables = {one["name"]: one["value"] for one in container["env"]}
        assert ClusterSpec.model_validate_json(variables[CLUSTER]) == cluster
        assert variables["MLFLOW_TRACKING_URI"] == "http://mlflow.hopforge-services:5000"
        [mount] = placed[name]["pvcMount"]
        assert (mount["constant"], mount["mountPath"]) == ("workspace", "/workspace")
        secrets = [(one["secretName"], *one["keyToEnv"]) for one in placed[name]["secretAsEnv"]]
        assert ("run-access", {"secretKey": "retriever-token", "envVar": "HOPFORGE_RETRIEVER_TOKEN"}) in secrets
        assert len(secrets) == len(cluster.secrets) == 3
        task = name.removeprefix("exec-")
        assert placed[name]["podMetadata"]["labels"] == {"hopforge.dev/task": task, "sidecar.istio.io/inject": "false"}
        # The namespace's standard asks for it, and KFP leaves it to the image.
        assert placed[name]["securityContext"] == {"runAsNonRoot": True}


def test_a_run_has_a_directory_of_its_own_a_first_step_and_a_last_one(compiled: Documents) -> None:
    pipeline, _ = compiled
    form = pipeline["root"]["inputDefinitions"]["parameters"]
    assert set(form) == FORM  # the directory is no question to people
    tasks = pipeline["root"]["dag"]["tasks"]
    assert tasks["end"]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    [inner] = [pipeline["components"][name] for name in pipeline["components"] if name.startswith("comp-exit-handler")]
    steps = inner["dag"]["tasks"]
    assert set(steps) == {"begin", "make", "use-01", "use-02", "last"}
    for name in set(steps) - {"begin"}:
        assert "begin" in steps[name]["dependentTasks"]
        directory = steps[name]["inputs"]["parameters"]["run_dir"]["runtimeValue"]["constant"]
        assert directory.startswith("/workspace/runs/")
        assert directory.endswith("{{$.pipeline_job_uuid}}")
    given = steps["begin"]["inputs"]["parameters"]
    assert set(given) == {"run_dir", "recipe", *FORM}
    assert all("componentInputParameter" in given[name] for name in FORM)
    taken = steps["make"]["inputs"]["parameters"]
    assert "componentInputParameter" in taken["seed"]
    assert taken["spec"] == {"taskOutputParameter": {"producerTask": "begin", "outputParameterKey": "spec"}}
    for task in (steps["begin"], tasks["end"]):
        assert not task.get("cachingOptions", {}).get("enableCache")


def test_the_form_has_texts_defaults_and_choices(compiled: Documents) -> None:
    form = compiled[0]["root"]["inputDefinitions"]["parameters"]
    assert form["seed"] == {
        "parameterType": "NUMBER_INTEGER",
        "defaultValue": 7.0,
        "isOptional": True,
        "description": "General: Of everything",
    }
    assert form["rate"]["description"] == "A rate (at least 0, at most 1)"
    assert form["mode"]["literals"] == ["well", "slow", "user-error", "bug"]
    assert form["spec_normalization"]["literals"] == ["token", "sequence"]
    assert form["spec_batch_size"]["defaultValue"] == 3.0
    assert "examples per optimiser step" in form["spec_batch_size"]["description"]


@pytest.mark.filterwarnings("ignore:.*local runner:UserWarning", "ignore:.*base image:RuntimeWarning")
def test_form_values_reach_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: ClusterSpec) -> None:
    """The pipeline for a cluster, run here: from the form through the first step into the others."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    workspace = cluster.workspace.model_copy(update={"path": str(tmp_path)})
    place = cluster.model_copy(update={"workspace": workspace, "environment": {}})
    pipeline = compile_recipe(load_recipe(write_toy(tmp_path), ["iterations=0", "seed=7"]), place)
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "kfp"))
    pipeline(seed=8, spec_batch_size=5, spec_normalization="sequence")
    [run_dir] = (tmp_path / "runs").iterdir()
    seed, rate, spec = ast.literal_eval((run_dir / "make.txt").read_text())
    assert (seed, rate, spec["batch_size"], spec["normalization"], spec["lora"]) == (8, 0.5, 5, "sequence", "${null}")
    resolved = json.loads((run_dir / "recipe.json").read_text())["parameters"]
    assert (resolved["seed"], resolved["spec"]["batch_size"], resolved["iterations"]) == (8, 5, 0)
    assert resolved["spec"]["lora"] is None
    with pytest.raises(RuntimeError, match="begin"):
        pipeline(spec_batch_size=0)
    assert len(list((tmp_path / "runs").iterdir())) == 1  # no step ran with what is not allowed


def test_form_values_are_recorded_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    run_dir = tmp_path / "runs/toy-1"
    recipe = sent(begun_with(load_recipe(write_toy(tmp_path))))
    filled = {"seed": 8.0, "rate": 0.25, "spec_batch_size": 4.0}  # as KFP hands them on
    begin_run(str(run_dir), recipe, filled)
    resolved = json.loads((run_dir / "recipe.json").read_text())
    local = load_recipe(tmp_path / "pipelines/toy/small.yaml", ["seed=8", "rate=0.25", "spec.batch_size=4"])
    assert resolved == local.resolved()  # the same as on one machine
    with pytest.raises(UserError, match="seed: 8 → 9"):
        begin_run(str(run_dir), recipe, filled | {"seed": 9})
    end_run(str(run_dir), "CANCELLED")
    ended = [event for event in read(run_file(run_dir))[0] if event["event"] == "ended"]
    assert [event["status"] for event in ended] == ["KILLED"]


def test_the_form_sets_fewer_iterations_than_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    pipeline = PIPELINE.replace("form: [seed,", "form: [iterations,").replace(
        "iteration: ${iteration}", "iteration: ${parameters.iterations}"
    )
    recipe = load_recipe(write_toy(tmp_path, pipeline=pipeline), ["iterations=3"])
    [field] = [field for field in recipe.form if field.name == "iterations"]
    assert (field.value_in(recipe.parameters), field.bounds) == (3, "at least 0, at most 3")
    begun = sent(begun_with(recipe))
    begin_run(str(tmp_path / "run"), begun, {"iterations": 1.0})
    assert json.loads((tmp_path / "run/recipe.json").read_text())["parameters"]["iterations"] == 1
    with pytest.raises(UserError, match="iterations: must be at most 3, but is 4"):
        begin_run(str(tmp_path / "other"), begun, {"iterations": 4})


def test_a_count_in_the_form_is_neither_negative_nor_above_the_compiled_one(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace("form: [seed,", "form: [iterations,").replace(
        "iteration: ${iteration}", "iteration: ${parameters.iterations}"
    )
    unbounded = pipeline.replace("default: 2, minimum: 0", "default: 2")
    recipe = load_recipe(write_toy(tmp_path / "unbounded", pipeline=unbounded))
    with pytest.raises(UserError, match="iterations: must be at least 0, but is -1"):
        begin_run(str(tmp_path / "run"), sent(begun_with(recipe)), {"iterations": -1})
    chosen = pipeline.replace("default: 2, minimum: 0", "default: 2, choices: [0, 1, 2, 5]")
    recipe = load_recipe(write_toy(tmp_path / "chosen", pipeline=chosen))
    assert [field.choices for field in recipe.form if field.name == "iterations"] == [(0, 1, 2)]


def test_iteration_beyond_the_last_hands_on_what_it_was_given(tmp_path: Path) -> None:
    shared = {"run_dir": str(tmp_path), "method": "mygo", "phase": "iteration-03", "iteration": 3, "seed": 0}
    model = {"model_path": "/the/policy", "model_digest": "abc"}
    structs: dict[str, Any] = {"agent": {}, "sampling": {}, "retrieval": {}}
    found: dict[str, Any] = {"environment": "world-kg", "searched_digest": "", "index_digest": ""}
    artifacts = {
        name: dsl.Dataset(uri=str(tmp_path / name)) for name in ("rollouts", "selected", "card", "model", "scores")
    }

    def call(component: str, outputs: Sequence[str], **inputs: Any) -> Any:
        function = load_component(read_interface(HOME / f"components/{component}/component.py")).python_func  # type: ignore[attr-defined]
        given = {**shared, **model, **structs, **found, **inputs, **{name: artifacts.get(name) for name in outputs}}
        return function(**{name: given[name] for name in signature(function).parameters})

    carry = {"threshold": 0.75}
    sampled = call("sample", ["rollouts"], step="iteration", settings={}, carry=carry, train_digest="", iterations=2)
    assert sampled == ("", carry)
    outputs = ["selected", "figures", "card"]
    scored = call("score", outputs, step="iteration", settings={}, carry=carry, rollouts_digest=sampled[0])
    assert scored == ("",)
    trained = call("train", ["model", "metrics"], selected_digest=scored[0], training={})
    assert trained == tuple(model.values())
    assert call("evaluate", ["scores", "metrics"], evaluation={}, eval_digest="", iterations=2) == ("",)
    assert {path.name for path in tmp_path.iterdir()} == set(artifacts), "no phase was begun, and nothing tracked"
    assert json.loads((tmp_path / "rollouts").read_text())["skipped"] == "iteration 3 of 2"


def test_invalid_form_values_are_refused_in_one_message(tmp_path: Path) -> None:
    recipe = sent(begun_with(load_recipe(write_toy(tmp_path))))
    with pytest.raises(UserError) as caught:
        begin_run(str(tmp_path / "run"), recipe, {"rate": 2, "mode": "wel", "spec_normalization": "both"})
    for said in ("rate: must be at most 1, but is 2", "did you mean well?", "spec.normalization: Input should be"):
        assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_jobs_are_made_only_in_a_cluster_and_only_of_what_they_can_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: ClusterSpec
) -> None:
    monkeypatch.delenv(CLUSTER, raising=False)
    assert job_runner(tmp_path) is None
    monkeypatch.setenv(CLUSTER, cluster.model_dump_json())
    run = job_runner(tmp_path)
    assert run is not None
    with pytest.raises(UserError, match="is not under /workspace"):
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
