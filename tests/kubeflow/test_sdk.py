"""The toy pipeline, written by hand with KFP's SDK: the IR that hopforge writes must be the same."""

# ruff: noqa: C408  (the steps are written as hopforge writes them)
import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf import json_format
from kfp import dsl, kubernetes

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.kubeflow.compile import compile_recipe
from platform_sdk.kubeflow.component import LAUNCHER_IMAGE, container_ir, task_signature
from tests.kubeflow.toy import PIPELINE, write_toy

component = dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
Item = dict[str, Any]
CLUSTER: Item = {
    "workspace": {"claim": "data", "path": "/workspace"},
    "launcher_image": "registry.example/launcher:1",
    "launcher": {"cpu": "1500m", "memory": "3Gi"},
    "environment": {"PYTHONPATH": "/code", "OTHER": "1"},
    "secrets": {"A": "one/a", "B": "two/b", "C": "one/c"},
}


@component
def begin(
    run_id: str, run_name: str, workspace: str, recipe: str, d1_training_batch: int, d2_training_normalization: str,
    f1_run_seed: int, f2_run_rate: float, f3_run_mode: str, submitted_by: str, begin_card: dsl.Output[dsl.Markdown],
) -> NamedTuple("Outputs", [("run_dir", str), ("settings", str)]):  # fmt: skip
    from platform_sdk.kubeflow.pod import begin

    return begin(
        run_id, run_name, workspace,
        dict(
            recipe=recipe, d1_training_batch=d1_training_batch, d2_training_normalization=d2_training_normalization,
            f1_run_seed=f1_run_seed, f2_run_rate=f2_run_rate, f3_run_mode=f3_run_mode, submitted_by=submitted_by,
        ),
        dict(card=begin_card), ["run_dir", "settings"],
    )  # fmt: skip


@component
def make(
    run_dir: str, settings: str, make_card: dsl.Output[dsl.Markdown], make_metrics: dsl.Output[dsl.Metrics]
) -> NamedTuple("Outputs", [("digest", str), ("level", float)]):
    from platform_sdk.kubeflow.pod import run_step

    return run_step(
        "make", run_dir, settings, dict(), dict(card=make_card, metrics=make_metrics),
        ["digest", "level"],
    )  # fmt: skip


@component
def iterations(
    run_dir: str, settings: str, make_level: float, make_digest: str, iterations_card: dsl.Output[dsl.Markdown]
) -> NamedTuple("Outputs", [("digest", str), ("old", str)]):
    from platform_sdk.kubeflow.pod import run_step

    return run_step(
        "iterations", run_dir, settings, dict(make_level=make_level, make_digest=make_digest),
        dict(card=iterations_card), ["digest", "old"],
    )  # fmt: skip


@component
def last(run_dir: str, settings: str, digest: str, last_card: dsl.Output[dsl.Markdown]) -> NamedTuple(
    "Outputs", [("Output", str)]
):
    from platform_sdk.kubeflow.pod import run_step

    return run_step("last", run_dir, settings, dict(digest=digest), dict(card=last_card), ["Output"])


@component
def end(
    run_id: str, run_name: str, workspace: str, end_card: dsl.Output[dsl.Markdown], status: dsl.PipelineTaskFinalStatus
):  # type: ignore[no-untyped-def]
    from platform_sdk.kubeflow.pod import end

    return end(run_id, run_name, workspace, status.state, dict(), dict(card=end_card))


def placed(task: Any) -> Any:
    task.set_container_image("registry.example/launcher:1").set_caching_options(False)
    task.set_cpu_request("1500m").set_cpu_limit("1500m").set_memory_request("3Gi").set_memory_limit("3Gi")
    task.set_env_variable("PYTHONPATH", "/code").set_env_variable("HOPFORGE_TASK", task.name)
    kubernetes.mount_pvc(task, pvc_name="data", mount_path="/workspace")
    kubernetes.add_pod_label(task, "hopforge.dev/task", task.name)
    kubernetes.add_pod_label(task, "sidecar.istio.io/inject", "false")
    kubernetes.set_security_context(task, run_as_non_root=True, run_as_group=10001)
    kubernetes.use_secret_as_env(task, secret_name="one", secret_key_to_env={"a": "A", "c": "C"})
    kubernetes.use_secret_as_env(task, secret_name="two", secret_key_to_env={"b": "B"})
    return task


def toy(
    d1_training_batch: int = 3,
    d2_training_normalization: str = "token",
    f1_run_seed: int = 1,
    f2_run_rate: float = 0.5,
    f3_run_mode: str = "well",
    submitted_by: str = "",
):  # type: ignore[no-untyped-def]
    place = {"run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER, "run_name": "small", "workspace": "/workspace"}
    with dsl.ExitHandler(placed(end(**place)), name="steps"):
        begun = placed(begin(
            **place, recipe="RECIPE", d1_training_batch=d1_training_batch,
            d2_training_normalization=d2_training_normalization, f1_run_seed=f1_run_seed, f2_run_rate=f2_run_rate,
            f3_run_mode=f3_run_mode, submitted_by=submitted_by,
        ))  # fmt: skip
        common = {name: begun.outputs[name] for name in ("run_dir", "settings")}
        made = placed(make(**common))
        repeated = placed(iterations(**common, make_level=made.outputs["level"], make_digest=made.outputs["digest"]))
        placed(last(**common, digest=repeated.outputs["digest"]))


def cluster() -> ClusterSpec:
    shipped = read_as(ClusterSpec, Path(__file__).parents[2] / "pipelines/cluster.yaml")
    return ClusterSpec.model_validate(shipped.model_dump() | CLUSTER)


def with_parsed_sources(content: Item) -> Item:
    """Replace the sources of the steps by their syntax trees, which do not depend on line breaks."""
    for executor in content["deploymentSpec"]["executors"].values():
        command = executor["container"]["command"]
        command[-1] = ast.dump(ast.parse(command[-1]))
    return content


def without_form_texts(content: Item) -> Item:
    """Remove what the SDK's functions cannot state: descriptions and choices of the form's fields."""
    for definition in content["root"]["inputDefinitions"]["parameters"].values():
        definition.pop("description", None)
        definition.pop("literals", None)
    return content


def test_ir_is_what_kfps_sdk_compiles(tmp_path: Path) -> None:
    compiled = compile_recipe(load_recipe(write_toy(tmp_path)), cluster())
    group = compiled.specification["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    group["begin"]["inputs"]["parameters"]["recipe"]["runtimeValue"]["constant"] = "RECIPE"
    # KFP's SDK inspects the whole stack at every setting of a task; a thread's own stack is short.
    with ThreadPoolExecutor(1) as thread:
        built = thread.submit(dsl.pipeline(name="toy", description="A toy"), toy).result()
    specification, platform = (json_format.MessageToDict(part) for part in (built.pipeline_spec, built.platform_spec))
    assert with_parsed_sources(without_form_texts(compiled.specification)) == with_parsed_sources(specification)
    assert compiled.platform == platform


@pytest.mark.parametrize("name", ["begin", "end", "exit-handler-1"])
def test_step_with_a_name_of_hopforges_own_steps_is_refused(tmp_path: Path, name: str) -> None:
    recipe = load_recipe(write_toy(tmp_path, pipeline=PIPELINE.replace("id: last", f"id: {name}")))
    with pytest.raises(UserError, match=f"step {name}: hopforge has a step of this name on a cluster; rename"):
        compile_recipe(recipe, cluster())


def test_function_of_a_step_whose_name_is_a_keyword_of_python_is_valid() -> None:
    container = container_ir(task_signature("for", "", {}, {}))
    assert container["args"][-1] == "for_"
    ast.parse(container["command"][-1])
