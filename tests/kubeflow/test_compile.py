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
from platform_sdk.kubeflow.packing import SUBMITTED_BY
from platform_sdk.kubeflow.remote.versions import compile_for
from platform_sdk.kubeflow.training_job import pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.here import describe
from platform_sdk.processes.launch import StepProcesses
from tests.kubeflow.crds import check
from tests.kubeflow.node_status import LIMIT, node_status
from tests.kubeflow.toy import PIPELINE, write_toy

HOME = Path(__file__).parents[2]
SHIPPED = sorted(path for path in HOME.glob("pipelines/*/*.yaml") if path.name != "pipeline.yaml")


def ir(path: Path) -> dict[str, Any]:
    return next(document for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader) if document)


@pytest.fixture(scope="module")
def cluster() -> ClusterSpec:
    return read_as(ClusterSpec, HOME / "pipelines/cluster.yaml")


@pytest.fixture
def compiled(tmp_path: Path, cluster: ClusterSpec) -> Path:
    recipe = load_recipe(write_toy(tmp_path), ["seed=7"])
    write_ir(compile_recipe(recipe, cluster), tmp_path / "toy.yaml")
    return tmp_path / "toy.yaml"


def steps_of(pipeline: dict[str, Any]) -> dict[str, Any]:
    [inner] = [pipeline["components"][name] for name in pipeline["components"] if name.startswith("comp-exit-handler")]
    tasks: dict[str, Any] = inner["dag"]["tasks"]
    return tasks


def from_task(task: str, output: str) -> dict[str, Any]:
    return {"taskOutputParameter": {"producerTask": task, "outputParameterKey": output}}


def test_steps_get_names_digests_and_what_earlier_steps_hand_on(compiled: Path) -> None:
    tasks = steps_of(ir(compiled))
    assert set(tasks) == {"begin", "make", "iterations", "last"}
    common = {"run_dir": from_task("begin", "run_dir"), "settings": from_task("begin", "settings")}
    given = {name: task["inputs"]["parameters"] for name, task in tasks.items()}
    assert given["make"] == common
    handed_on = {"make_level": from_task("make", "level"), "make_digest": from_task("make", "digest")}
    assert given["iterations"] == common | handed_on
    assert given["last"] == common | {"digest": from_task("iterations", "digest")}


def test_independent_groups_run_one_after_another(tmp_path: Path, cluster: ClusterSpec) -> None:
    """A group locks the run directory, so a second one beside it would fail."""
    head, _, rest = PIPELINE.partition("  - id: make\n")
    groups = "".join(f"  - id: make-{name}\n    group: {name}\n{rest.partition('  - repeat:')[0]}" for name in "ab")
    last = rest[rest.index("  - id: last") :].replace("carry.digest", "steps.make-a.outputs.digest")
    recipe = load_recipe(write_toy(tmp_path, pipeline=head + groups + last))
    tasks = steps_of(compile_recipe(recipe, cluster).specification)
    after = {name: set(task.get("dependentTasks", ())) for name, task in tasks.items()}
    assert after == {"begin": set(), "a": {"begin"}, "b": {"begin", "a"}, "last": {"begin", "a"}}


def test_groups_whose_steps_alternate_run_in_the_order_of_their_outputs(tmp_path: Path, cluster: ClusterSpec) -> None:
    head, _, rest = PIPELINE.partition("  - id: make\n")
    make = rest.partition("  - repeat:")[0]
    last = rest[rest.index("  - id: last") :].replace("carry.digest", "steps.make-b.outputs.digest")
    steps = f"  - id: make-a\n    group: a\n{make}  - id: make-b\n    group: b\n{make}"
    recipe = load_recipe(
        write_toy(tmp_path, pipeline=head + steps + last.replace("id: last", "id: last\n    group: a"))
    )
    tasks = steps_of(compile_recipe(recipe, cluster).specification)
    after = {name: set(task.get("dependentTasks", ())) for name, task in tasks.items()}
    assert after == {"begin": set(), "b": {"begin"}, "a": {"begin", "b"}}


@pytest.mark.parametrize("iterations", [0, 1, 50])
def test_number_of_tasks_does_not_depend_on_the_iterations(
    tmp_path: Path, cluster: ClusterSpec, iterations: int
) -> None:
    recipe = load_recipe(write_toy(tmp_path), [f"iterations={iterations}", "overlap=true"])
    assert set(steps_of(compile_recipe(recipe, cluster).specification)) == {"begin", "make", "iterations", "last"}


def test_run_id_is_a_whole_constant_everywhere(compiled: Path) -> None:
    """Pipelines replaces a placeholder only where it is the whole constant."""
    pipeline = ir(compiled)
    for task in (steps_of(pipeline)["begin"], pipeline["root"]["dag"]["tasks"]["end"]):
        assert task["inputs"]["parameters"]["run_id"] == {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}
    assert compiled.read_text().count("{{$") - compiled.read_text().count("{{$}}") == 2


@pytest.mark.parametrize("value", ["a{{$.pipeline_job_uuid}}", "{{$.a}}{{$.b}}", "{{workflow.name}}"])
def test_placeholder_in_the_form_is_refused(tmp_path: Path, cluster: ClusterSpec, value: str) -> None:
    pipeline = PIPELINE.replace("phase: last", f"phase: '{value}'")
    recipe = load_recipe(write_toy(tmp_path, pipeline=pipeline))
    compile_recipe(recipe, cluster)  # constants of steps are in the run directory, where nothing is replaced
    recipe.parameters["mode"] = value
    with pytest.raises(UserError, match="field f3_run_mode has a default that holds '{{'"):
        compile_recipe(recipe, cluster)


def test_name_that_no_label_can_hold_is_refused(tmp_path: Path, cluster: ClusterSpec) -> None:
    """A group's name has no limit of its own beyond a step's; an iteration's name may be longer than a label."""
    pipeline = PIPELINE.replace("carry:\n", "as: " + "i" * 70 + "\n      carry:\n", 1).replace(
        "${iteration}", "${" + "i" * 70 + "}"
    )
    recipe = load_recipe(write_toy(tmp_path, pipeline=pipeline))
    with pytest.raises(UserError, match="has 71 characters, and Kubeflow takes 63"):
        compile_recipe(recipe, cluster)


def test_a_round_trip_keeps_everything(compiled: Path, tmp_path: Path) -> None:
    loaded = components.load_component_from_file(str(compiled))
    compiler.Compiler().compile(loaded, str(tmp_path / "again.yaml"))
    assert ir(tmp_path / "again.yaml") == ir(compiled)


def test_compiled_step_installs_no_packages(compiled: Path) -> None:
    """No pip install on the cluster: the image has everything."""
    container = ir(compiled)["deploymentSpec"]["executors"]["exec-make"]["container"]
    assert not any("pip install" in part for part in container["command"])


def test_artifacts_have_distinct_names(compiled: Path) -> None:
    components_ = ir(compiled)["components"]
    names = [name for one in components_.values() for name in one.get("outputDefinitions", {}).get("artifacts", {})]
    assert sorted(names) == [
        "begin_card", "end_card", "iterations_card", "last_card", "make_card", "make_metrics",
    ]  # fmt: skip


def test_recipe_values_prefill_the_form(tmp_path: Path) -> None:
    filled = form_values(load_recipe(write_toy(tmp_path), ["rate=1", "spec.batch_size=8"]))
    expected = {
        "d1_training_batch": 8, "d2_training_normalization": "token",
        "f1_run_seed": 1, "f2_run_rate": 1.0, "f3_run_mode": "well",
    }  # fmt: skip
    assert filled == expected
    assert [type(value) for value in filled.values()] == [type(value) for value in expected.values()]


def test_ir_is_yaml(tmp_path: Path, cluster: ClusterSpec) -> None:
    pipeline = compile_recipe(load_recipe(write_toy(tmp_path)), cluster)
    with pytest.raises(UserError, match=r"end the name in \.yaml"):
        write_ir(pipeline, tmp_path / "toy.json")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_recipes_compile(path: Path, tmp_path: Path, cluster: ClusterSpec) -> None:
    recipe = load_recipe(path, variables=cluster.environment)
    compiled = compile_for(recipe, cluster)
    write_ir(compiled.pipeline, tmp_path / "ir.yaml")
    assert components.load_component_from_file(str(tmp_path / "ir.yaml"))
    parsed = json_format.ParseDict(ir(tmp_path / "ir.yaml"), pipeline_spec_pb2.PipelineSpec())
    assert set(parsed.root.input_definitions.parameters) == {*(field.name for field in recipe.form), SUBMITTED_BY}
    for field in recipe.form:
        given = parsed.root.input_definitions.parameters[field.name]
        assert [one.string_value for one in given.literals] == list(field.choices)
        assert json_format.MessageToDict(given.default_value) == field.value_in(recipe.parameters)
    outside = {task.group or task.id for task in recipe.plan} | {group.id for group in recipe.groups}
    executors = {name.removeprefix("exec-") for name in json_format.MessageToDict(parsed.deployment_spec)["executors"]}
    assert executors == {"begin", "end", *outside}
    assert len(compiled.version) < 64
    assert node_status(compiled.pipeline) < LIMIT


def test_node_status_of_a_run_does_not_depend_on_its_iterations(tmp_path: Path, cluster: ClusterSpec) -> None:
    few, many = (
        node_status(compile_recipe(load_recipe(HOME / "pipelines/mygo/world.yaml", [f"iterations={n}"]), cluster))
        for n in (1, 100)
    )
    assert few == pytest.approx(many, rel=0.01)


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
        if name != "graph" and "job_runner" in (HOME / f"platform_sdk/steps/{name}.py").read_text()
    }
    assert with_jobs
    for component, id_ in with_jobs.items():
        spec_file = run_dir / id_ / "step.json"
        if component == "train":
            work = StepProcesses("platform_sdk.training", spec_file, component)
        else:
            work = StepProcesses(
                "platform_sdk.methods", spec_file, component, trains=component == "online",
                vllm=engine.engine == "vllm", server_spec=run_dir / "server.json" if engine.brings_server else None,
            )  # fmt: skip
        check(backend.render(describe(work, cluster, run_dir, "team-a")))
