"""Compilation of a recipe to a Kubeflow pipeline: its tasks as KFP tasks, the pipeline's form as its parameters.

On a cluster the recipe's values become the defaults of the form, and what the form leaves alone is written into the
tasks. On this machine nothing is filled in any more, so all of it is. Every task is a component of its own name, so
that the UI and the local run call it by what it does.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kfp import compiler, dsl
from kfp.dsl import structures
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.graph_component import GraphComponent
from kfp.pipeline_spec import pipeline_spec_pb2

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.components import Interface, read_interface
from platform_sdk.config.errors import UserError
from platform_sdk.config.form import FormField
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.task import RUN_DIR, Constant, FromParameter, FromTask
from platform_sdk.files import write_text
from platform_sdk.kubeflow.component import sent
from platform_sdk.kubeflow.lifecycle import begun_with
from platform_sdk.kubeflow.lifecycle_components import lifecycle_components
from platform_sdk.kubeflow.placement import place, run_dir_of

KFP_TYPES = {"string": "String", "integer": "Integer", "number": "Float", "boolean": "Boolean", "struct": "Dict"}
RUN_DIR_TEXT = "Run: the directory that holds the run's state; the same directory resumes the run"


def compile_recipe(recipe: Recipe, cluster: ClusterSpec | None = None) -> GraphComponent:
    """Build the KFP pipeline of a recipe: to be run in a given directory, or on a cluster.

    On a cluster every run has a directory of its own in the workspace, a first step that begins it there and in MLflow,
    and a last one that ends it, however it went.

    Raises:
        UserError: a component cannot be loaded.
    """
    form = () if cluster is None else recipe.form

    def body(*values: Any) -> None:
        given = dict(zip(inputs, values, strict=True))
        if cluster is None:
            _steps(recipe, {**_constants(recipe), **given})
            return
        run_dir = run_dir_of(cluster, recipe.name)
        begin, end = lifecycle_components(form)
        ended = end(run_dir=run_dir)
        place(ended.set_caching_options(False), cluster)
        with dsl.ExitHandler(exit_task=ended, name="run"):
            begun = begin(run_dir=run_dir, recipe=sent(begun_with(recipe)), **given)
            place(begun.set_caching_options(False), cluster)
            filled = {name: given[name] if name in given else begun.outputs[name] for name in recipe.run_time}
            for task in _steps(recipe, {RUN_DIR: run_dir, **filled}).values():
                place(task.after(begun), cluster)

    inputs = {RUN_DIR: structures.InputSpec("String", description=RUN_DIR_TEXT)} if cluster is None else {}
    for field in form:
        default = field.value_in(recipe.parameters)
        inputs[field.name] = structures.InputSpec(
            KFP_TYPES[field.type], default=default, optional=True, description=field.text
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
    return pipeline


def _constants(recipe: Recipe) -> dict[str, Any]:
    """The values of what the form sets, as on this machine, where they are known."""
    values = {}
    for name, parameter in recipe.run_time.items():
        value = recipe.parameters[name]
        values[name] = float(value) if parameter.type == "number" else sent(value)
    return values


def _steps(recipe: Recipe, channels: Mapping[str, Any]) -> dict[str, Any]:
    """Make the recipe's tasks; ``channels`` is what parameters come from."""
    loaded: dict[str, BaseComponent] = {}
    tasks: dict[str, Any] = {}
    for planned in recipe.plan:
        interface = read_interface(recipe.pipeline.component_path(planned.component))
        if planned.component not in loaded:
            loaded[planned.component] = load_component(interface)
        component = _named(loaded[planned.component], planned.id)
        arguments: dict[str, Any] = {}
        for name, wire in planned.inputs.items():
            match wire:
                case Constant(value=value):
                    arguments[name] = float(value) if interface.inputs[name].type == "number" else sent(value)
                case FromParameter(name=parameter):
                    arguments[name] = channels[parameter]
                case FromTask(task=task, output=output):
                    arguments[name] = tasks[task].outputs[output]
        tasks[planned.id] = component(**arguments)
    return tasks


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
        write_text(path, written.read_text(encoding="utf-8"))


def load_component(interface: Interface) -> BaseComponent:
    """Import a component's file and return its KFP component.

    Raises:
        UserError: the file cannot be imported, or its function is no KFP component.
    """
    path = interface.path
    specification = importlib.util.spec_from_file_location(f"hopforge_component_{path.parent.name}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
    component = getattr(module, interface.function)
    if not isinstance(component, BaseComponent):
        raise UserError(f"{path}: {interface.function} is not a KFP component; decorate it with @dsl.component")
    return component


def _named(component: BaseComponent, name: str) -> BaseComponent:
    """A copy of a component under a task's name: KFP names tasks and their folders by their component."""
    copied = copy.copy(component)
    copied.component_spec = copy.deepcopy(component.component_spec)
    copied.component_spec.name = name
    copied.name = name
    return copied


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
