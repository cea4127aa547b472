from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml  # several times as fast as ruamel, and some of this is long
from google.protobuf import json_format
from kfp import compiler, components
from kfp.pipeline_spec import pipeline_spec_pb2

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.kubeflow.compile import compile_recipe, form_values, write_ir
from platform_sdk.kubeflow.component import received, sent
from platform_sdk.kubeflow.remote.versions import compile_for
from platform_sdk.kubeflow.training_job import pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.here import describe
from platform_sdk.processes.launch import StepProcesses
from tests.kubeflow.crds import check
from tests.kubeflow.toy import write_toy

HOME = Path(__file__).parents[2]
SHIPPED = sorted(path for path in HOME.glob("pipelines/*/*.yaml") if path.name != "pipeline.yaml")


def ir(path: Path) -> dict[str, Any]:
    return next(document for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader) if document)


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    recipe = load_recipe(write_toy(tmp_path), ["seed=7"])
    write_ir(compile_recipe(recipe), tmp_path / "toy.yaml")
    return tmp_path / "toy.yaml"


def test_pipeline_compiled_for_this_machine_has_only_a_run_dir_input(compiled: Path) -> None:
    root = ir(compiled)["root"]
    assert set(root["inputDefinitions"]["parameters"]) == {"run_dir"}
    given = root["dag"]["tasks"]["make"]["inputs"]["parameters"]
    assert given["seed"] == {"runtimeValue": {"constant": 7.0}}
    assert given["spec"]["runtimeValue"]["constant"]["batch_size"] == 3.0
    assert given["spec"]["runtimeValue"]["constant"]["lora"] == "${null}"  # KFP's structs hold no null


def test_tasks_are_wired(compiled: Path) -> None:
    tasks = ir(compiled)["root"]["dag"]["tasks"]
    assert set(tasks) == {"make", "use-01", "use-02", "last"}
    inputs = tasks["use-02"]["inputs"]["parameters"]
    assert inputs["phase"] == {"runtimeValue": {"constant": "iteration-02"}}
    assert inputs["level"] == {"taskOutputParameter": {"producerTask": "make", "outputParameterKey": "level"}}
    assert inputs["digest"] == {"taskOutputParameter": {"producerTask": "use-01", "outputParameterKey": "Output"}}
    assert inputs["run_dir"] == {"componentInputParameter": "run_dir"}
    assert sorted(tasks["use-02"]["dependentTasks"]) == ["make", "use-01"]


def test_a_round_trip_keeps_everything(compiled: Path, tmp_path: Path) -> None:
    loaded = components.load_component_from_file(str(compiled))
    compiler.Compiler().compile(loaded, str(tmp_path / "again.yaml"))
    assert ir(tmp_path / "again.yaml") == ir(compiled)


def test_compiled_step_installs_no_packages(compiled: Path) -> None:
    """No pip install on the cluster: the image has everything."""
    container = ir(compiled)["deploymentSpec"]["executors"]["exec-use-01"]["container"]
    assert container["image"] == "none"
    assert not any("pip install" in part for part in container["command"])


def test_recipe_values_prefill_the_form(tmp_path: Path) -> None:
    filled = form_values(load_recipe(write_toy(tmp_path), ["rate=1", "spec.batch_size=8"]))
    expected = {"seed": 1, "rate": 1.0, "mode": "well", "spec_batch_size": 8, "spec_normalization": "token"}
    assert filled == expected
    assert [type(value) for value in filled.values()] == [type(value) for value in expected.values()]


def test_numbers_and_nulls_survive_the_protobuf() -> None:
    given = {"a": None, "b": [{"c": None, "d": 0}, None], "e": ""}
    assert "None" not in repr(sent(given))
    assert received(sent(given)) == given
    struct = received({"a": 16.0, "b": [1.5, 2.0], "c": True, "d": "1.0", "e": {"f": -3.0}})
    assert struct == {"a": 16, "b": [1.5, 2], "c": True, "d": "1.0", "e": {"f": -3}}
    assert [type(value) for value in (struct["a"], struct["c"], struct["b"][0])] == [int, bool, float]


def test_ir_is_yaml(tmp_path: Path) -> None:
    pipeline = compile_recipe(load_recipe(write_toy(tmp_path)))
    with pytest.raises(UserError, match=r"end the name in \.yaml"):
        write_ir(pipeline, tmp_path / "toy.json")


def test_component_that_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    recipe = write_toy(tmp_path)
    component = tmp_path / "components" / "make" / "component.py"
    component.write_text("import nothing_of_that_name\n" + component.read_text())
    with pytest.raises(UserError, match=r"component\.py: cannot be loaded: ModuleNotFoundError"):
        compile_recipe(load_recipe(recipe))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_recipes_compile(path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path)
    write_ir(compile_recipe(recipe), tmp_path / "ir.yaml")
    if len(recipe.plan) < 20:  # KFP's own loader is slow, and reads the same kinds of tasks here and there
        assert components.load_component_from_file(str(tmp_path / "ir.yaml"))
    parsed = json_format.ParseDict(ir(tmp_path / "ir.yaml"), pipeline_spec_pb2.PipelineSpec())
    assert set(parsed.root.dag.tasks) == {task.id for task in recipe.plan}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_recipes_compile_for_a_cluster(path: Path) -> None:
    pytest.importorskip("kfp.kubernetes", reason="the extra [cluster] is not installed")
    recipe = load_recipe(path)
    compiled = compile_for(recipe, read_as(ClusterSpec, HOME / "pipelines/cluster.yaml"))
    sent_there = json_format.MessageToJson(compiled.pipeline.pipeline_spec)
    parsed = json_format.Parse(sent_there, pipeline_spec_pb2.PipelineSpec())
    assert set(parsed.root.input_definitions.parameters) == {field.name for field in recipe.pipeline.form}
    for field in recipe.pipeline.form:
        given = parsed.root.input_definitions.parameters[field.name]
        assert [one.string_value for one in given.literals] == list(field.choices)
        assert json_format.MessageToDict(given.default_value) == field.value_in(recipe.parameters)
    assert {name.removeprefix("exec-") for name in json_format.MessageToDict(parsed.deployment_spec)["executors"]} == {
        "begin", "end", *(task.id for task in recipe.plan)
    }  # fmt: skip
    assert len(compiled.version) < 64


@pytest.mark.parametrize("backend", [pytorchjob, trainjob], ids=lambda backend: backend.KIND)
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_jobs_of_shipped_recipes_are_valid_by_the_published_schemas(path: Path, backend: Any) -> None:
    recipe = load_recipe(path)
    cluster = read_as(ClusterSpec, HOME / "pipelines/cluster.yaml")
    engine = recipe.settings("sampling").engine
    run_dir = Path(f"/workspace/runs/{recipe.name}-d7c4a5a2-6f0a-4c6e-9d3e-0a8a3a1b2c3d")
    tasks = {task.component: task.id for task in recipe.plan}
    with_jobs = {
        name: id_
        for name, id_ in tasks.items()
        if name != "graph" and "job_runner" in recipe.pipeline.component_path(name).read_text()
    }
    assert with_jobs
    for component, id_ in with_jobs.items():
        spec_file = run_dir / id_ / "step.json"
        if component == "train":
            work = StepProcesses("platform_sdk.training", spec_file, component)
        else:
            work = StepProcesses(
                "platform_sdk.recipes", spec_file, component, trains=component == "online",
                vllm=engine.engine == "vllm", server_spec=run_dir / "server.json" if engine.brings_server else None,
            )  # fmt: skip
        if backend is trainjob and work.server_spec is not None:
            with pytest.raises(UserError, match="a TrainJob cannot bring the vLLM server"):
                backend.render(describe(work, cluster, run_dir, "team-a"))
            continue
        check(backend.render(describe(work, cluster, run_dir, "team-a")))
