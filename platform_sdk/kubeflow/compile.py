"""Compilation of a recipe to a Kubeflow pipeline.

Every step of the plan is a task, and so is every group of steps, as all iterations of a repeat. The recipe's values are
the defaults of the form. The first task, ``begin``, writes the settings into the run directory; the others are given
names and digests only, because Argo keeps every input of every task several times in one object of at most 1 MiB.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kfp import compiler, dsl
from kfp.dsl import PIPELINE_JOB_ID_PLACEHOLDER, structures
from kfp.dsl.graph_component import GraphComponent
from kfp.pipeline_spec import pipeline_spec_pb2

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.components import Port, read_interface
from platform_sdk.config.errors import UserError
from platform_sdk.config.form import FormField
from platform_sdk.config.plan import make_plan
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.task import FromTask, Plan
from platform_sdk.kubeflow.component import Signature, made, task_component
from platform_sdk.kubeflow.lifecycle import SUBMITTED_BY, begun_with, packed
from platform_sdk.kubeflow.limits import LABEL_VALUE, PIPELINE_NAME
from platform_sdk.kubeflow.placement import place
from platform_sdk.kubeflow.wires import outer_wires, step_wires
from platform_sdk.outputs import write_output

KFP_TYPES = {"string": "String", "integer": "Integer", "number": "Float", "boolean": "Boolean"}
BEGIN, END = "begin", "end"
PLACEHOLDER = "{{"


def compile_recipe(recipe: Recipe, cluster: ClusterSpec) -> GraphComponent:
    """Build the KFP pipeline of a recipe for a cluster.

    Every run has a directory of its own in the workspace, a first step that begins it there and in MLflow, and a last
    one that ends it, however it went.

    Raises:
        UserError: a value cannot be part of a pipeline.
    """
    form = recipe.form
    plan, problems = make_plan(recipe.pipeline, recipe.parameters, at_least=1)
    assert not problems, "the recipe was loaded"

    def body(*values: Any) -> None:
        given = dict(zip(inputs, values, strict=True))
        place_of_run = {
            "run_id": PIPELINE_JOB_ID_PLACEHOLDER,
            "run_name": recipe.name,
            "workspace": cluster.workspace.path,
        }
        ended = _end_component()(**place_of_run)
        place(ended, cluster)
        with dsl.ExitHandler(exit_task=ended, name="steps"):
            begun = _begin_component(form)(**place_of_run, recipe=packed(begun_with(recipe, cluster)), **given)
            place(begun, cluster)
            for task in _Tasks(plan, begun).all():
                place(task, cluster)

    inputs = {
        field.name: structures.InputSpec(
            KFP_TYPES[field.type], default=field.value_in(recipe.parameters), optional=True, description=field.text
        )
        for field in form
    }
    inputs[SUBMITTED_BY] = structures.InputSpec(
        "String", default="", optional=True, description="Name of the person who starts the run, for its records"
    )
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    # KFP asks the function for its parameters' names.
    body.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in inputs])  # type: ignore[attr-defined]
    specification = structures.ComponentSpec(
        name=recipe.pipeline.name,
        description=recipe.description or recipe.pipeline.document.description,
        inputs=inputs,
        outputs=None,
        implementation=structures.Implementation(),
    )
    pipeline = GraphComponent(component_spec=specification, pipeline_func=body)
    _add_choices(pipeline.pipeline_spec, form)
    check_constants(pipeline.pipeline_spec)
    check_names(pipeline.pipeline_spec)
    return pipeline


class _Tasks:
    """Tasks of a pipeline, each made once, after those it needs."""

    def __init__(self, plan: Plan, begun: Any) -> None:
        self._tasks = {task.id: task for task in plan.tasks}
        self._groups = {group.id: group for group in plan.groups}
        self._begun = begun
        self._made: dict[str, Any] = {}

    def all(self) -> Iterator[Any]:
        for task in self._tasks.values():
            self._task(task.group or task.id)
        return iter(self._made.values())

    def _task(self, id: str) -> Any:
        if id not in self._made:
            group = self._groups.get(id)
            wires = step_wires(self._tasks[id]) if group is None else outer_wires(self._tasks.values(), group)
            inputs = {name: self._port(wire).type for name, wire in wires.items()}
            arguments = {name: self._channel(wire) for name, wire in wires.items()}
            component = self._tasks[id].component if group is None else ""
            made_component = task_component(id, component, inputs, self._outputs(id))
            common = {name: self._begun.outputs[name] for name in ("run_dir", "settings")}
            self._made[id] = made_component(**common, **arguments)
        return self._made[id]

    def _outputs(self, id: str) -> dict[str, Port]:
        if id not in self._groups:
            return read_interface(self._tasks[id].component).outputs
        outside = (wire for task in self._tasks.values() if task.group != id for wire in task.inputs.values())
        needed = {wire for wire in outside if isinstance(wire, FromTask)}
        return {name: self._port(wire) for name, wire in self._groups[id].carried.items() if wire in needed}

    def _port(self, wire: FromTask) -> Port:
        return read_interface(self._tasks[wire.task].component).outputs[wire.output]

    def _channel(self, wire: FromTask) -> Any:
        """Return what hands on an output: its task, or the group that carries it."""
        group = self._tasks[wire.task].group
        if not group:
            return self._task(wire.task).outputs[wire.output]
        name = next(name for name, carried in self._groups[group].carried.items() if carried == wire)
        return self._task(group).outputs[name]


_PLACE = {"run_id": "string", "run_name": "string", "workspace": "string"}


def _begin_component(form: Sequence[FormField]) -> Any:
    inputs = {"recipe": "string"} | {field.name: field.type for field in form} | {SUBMITTED_BY: "string"}
    return made(Signature(BEGIN, inputs, {"run_dir": "string", "settings": "string"}), "begin", _PLACE, "")


def _end_component() -> Any:
    return made(Signature(END, {}), "end", _PLACE, "", status=True)


def check_constants(specification: pipeline_spec_pb2.PipelineSpec) -> None:
    """Check that no constant holds a placeholder besides text: KFP replaces it only where it is the whole constant.

    Raises:
        UserError: with the task, the input, and what to change.
    """
    for name, declared in specification.root.input_definitions.parameters.items():
        if PLACEHOLDER in declared.default_value.string_value:
            raise UserError(
                f"the form's field {name} has a default that holds {PLACEHOLDER!r}; remove it from the recipe"
            )
    for component in (specification.root, *specification.components.values()):
        for name, task in component.dag.tasks.items():
            for given, wire in task.inputs.parameters.items():
                text = wire.runtime_value.constant.string_value
                if PLACEHOLDER in text and not (text.startswith("{{$.") and text.find("}}") == len(text) - 2):
                    raise UserError(
                        f"task {name}: its input {given} holds {PLACEHOLDER!r} inside a longer text, which Kubeflow "
                        "would not replace and Argo may take for a template; remove it from the recipe's values"
                    )


def check_names(specification: pipeline_spec_pb2.PipelineSpec) -> None:
    """Check that the names of a pipeline and its tasks fit where Kubeflow and Kubernetes store them.

    Raises:
        UserError: with the name, its length and the limit.
    """
    tasks = {
        name for component in (specification.root, *specification.components.values()) for name in component.dag.tasks
    }
    limits = {specification.pipeline_info.name: PIPELINE_NAME, **dict.fromkeys(tasks, LABEL_VALUE)}
    for name, limit in limits.items():
        if len(name) > limit:
            raise UserError(f"{name}: has {len(name)} characters, and Kubeflow takes {limit}; give it a shorter name")


def form_values(recipe: Recipe) -> dict[str, Any]:
    """Return the arguments with which a pipeline compiled for a cluster becomes this recipe's run."""
    return {field.name: field.value_in(recipe.parameters) for field in recipe.form}


def write_ir(pipeline: GraphComponent, path: Path) -> None:
    """Write the pipeline's intermediate representation, which ``kfp.components.load_component_from_file`` reads."""
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(f"{path}: KFP writes pipelines as YAML; end the name in .yaml")
    with TemporaryDirectory() as folder:
        written = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(pipeline, str(written))
        write_output(path, written.read_text(encoding="utf-8"))


def _add_choices(specification: pipeline_spec_pb2.PipelineSpec, form: Sequence[FormField]) -> None:
    """Write choices as ``literals``, which the UI shows as a drop-down; the SDK itself cannot say them."""
    inputs = specification.root.input_definitions.parameters
    for field in form:
        for choice in field.choices:
            literal = inputs[field.name].literals.add()
            if isinstance(choice, str):
                literal.string_value = choice
            else:
                literal.number_value = choice
