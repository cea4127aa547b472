"""Compilation of a recipe to a Kubeflow pipeline.

Every step of the plan is a task, and so is every group of steps, e.g. all iterations of a repeat. The recipe's values
are the defaults of the form. The first task, ``begin``, writes the settings into the run directory; the other tasks get
names and digests only, because Argo stores every input of every task several times in one object of at most 1 MiB.

The intermediate representation (IR) is written directly, as plain data with the names of ``pipeline_spec.proto``. KFP's
SDK would write the same, which a test compares, but importing it takes most of a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.components import Port, read_interface
from platform_sdk.config.errors import UserError
from platform_sdk.config.form import FormField
from platform_sdk.config.plan import grouped, make_plan, ordered
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.task import FromTask, Plan
from platform_sdk.kubeflow.component import IR_TYPES, SDK, Item, Signature, component_ir, container_ir, task_signature
from platform_sdk.kubeflow.limits import LABEL_VALUE, PIPELINE_NAME
from platform_sdk.kubeflow.packing import SUBMITTED_BY, begun_with, packed
from platform_sdk.kubeflow.placement import placed, pod
from platform_sdk.kubeflow.wires import outer_wires, step_wires
from platform_sdk.outputs import write_output

BEGIN, END, STEPS = "begin", "end", "exit-handler-1"
RUN_ID = "{{$.pipeline_job_uuid}}"
"""Placeholder of the run's id."""
PLACEHOLDER = "{{"


@dataclass(frozen=True)
class PipelineIr:
    """The IR of a pipeline as JSON data: its specification, and the placement of its steps in Kubernetes."""

    specification: Item
    platform: Item


def compile_recipe(recipe: Recipe, cluster: ClusterSpec) -> PipelineIr:
    """Build the KFP pipeline of a recipe for a cluster.

    Every run has its own directory in the workspace, a first step that starts it there and in MLflow, and a last step
    that ends it whatever the outcome.

    Raises:
        UserError: a value cannot be part of a pipeline.
    """
    form = recipe.form
    plan, problems = make_plan(recipe.pipeline, recipe.parameters, at_least=1)
    assert not problems, "the recipe was loaded"
    steps = _Steps(plan)
    signatures = [_begin_signature(form), *steps.signatures, _end_signature()]
    for name in {BEGIN, END, STEPS}.intersection(signature.name for signature in steps.signatures):
        raise UserError(f"step {name}: hopforge has a step of this name on a cluster; rename the step")
    place = {
        "run_id": _constant(RUN_ID), "run_name": _constant(recipe.name), "workspace": _constant(cluster.workspace.path),
    }  # fmt: skip
    begun = {"recipe": _constant(packed(begun_with(recipe, cluster)))}
    names = [*(field.name for field in form), SUBMITTED_BY]
    filled = {name: {"componentInputParameter": f"pipelinechannel--{name}"} for name in names}
    tasks = {BEGIN: _task(BEGIN, {**place, **begun, **filled}), **steps.tasks}
    ended = _task(END, {**place, "status": {"taskFinalStatus": {"producerTask": STEPS}}}, after=[STEPS])
    group: Item = {"dag": {"tasks": tasks}}
    handler: Item = {"componentRef": {"name": f"comp-{STEPS}"}, "taskInfo": {"name": "steps"}}
    root: Item = {
        "dag": {"tasks": {STEPS: handler, END: ended | {"triggerPolicy": {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}}}}
    }
    types = {field.name: IR_TYPES[field.type] for field in form} | {SUBMITTED_BY: IR_TYPES["string"]}
    group["inputDefinitions"] = {
        "parameters": {f"pipelinechannel--{name}": {"parameterType": kind} for name, kind in types.items()}
    }
    handler["inputs"] = {
        "parameters": {f"pipelinechannel--{name}": {"componentInputParameter": name} for name in types}
    }
    submitter = {
        "parameterType": types[SUBMITTED_BY], "isOptional": True, "defaultValue": "", "description": _SUBMITTER,
    }  # fmt: skip
    root["inputDefinitions"] = {
        "parameters": {field.name: _form_input(field, recipe) for field in form} | {SUBMITTED_BY: submitter}
    }
    description = recipe.description or recipe.pipeline.document.description
    specification = {
        "pipelineInfo": {"name": recipe.pipeline.name} | ({"description": description} if description else {}),
        "root": root,
        "components": {f"comp-{one.name}": component_ir(one) for one in signatures} | {f"comp-{STEPS}": group},
        "deploymentSpec": {
            "executors": {
                f"exec-{one.name}": {"container": placed(container_ir(one), one.name, cluster)} for one in signatures
            }
        },
        "schemaVersion": "2.1.0",
        "sdkVersion": f"kfp-{SDK}",
    }
    pods = {f"exec-{one.name}": pod(one.name, cluster) for one in signatures}
    compiled = PipelineIr(specification, {"platforms": {"kubernetes": {"deploymentSpec": {"executors": pods}}}})
    check_constants(specification)
    check_names(specification)
    return compiled


def _form_input(field: FormField, recipe: Recipe) -> Item:
    """Return a field of the form; its choices are ``literals``, which the UI shows as a drop-down."""
    definition = {
        "parameterType": IR_TYPES[field.type],
        "isOptional": True,
        "description": field.text,
    }
    if (value := field.value_in(recipe.parameters)) is not None:
        definition["defaultValue"] = _json_number(value)
    if field.choices:
        definition["literals"] = [_json_number(choice) for choice in field.choices]
    return definition


def _json_number(value: Any) -> Any:
    """Return a value as KFP stores it: all numbers are floats."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _constant(text: str) -> Item:
    return {"runtimeValue": {"constant": text}}


def _output(task: str, name: str) -> Item:
    return {"taskOutputParameter": {"producerTask": task, "outputParameterKey": name}}


def _task(name: str, inputs: Item, after: Iterable[str] = ()) -> Item:
    task: Item = {
        "componentRef": {"name": f"comp-{name}"},
        "inputs": {"parameters": inputs},
        "taskInfo": {"name": name},
        "cachingOptions": {},  # every run has its own directory, so nothing is shared between runs
    }
    return task | ({"dependentTasks": sorted(after)} if after else {})


class _Steps:
    """Tasks of the plan's steps and groups, and the interfaces of their components."""

    def __init__(self, plan: Plan) -> None:
        self._tasks = {task.id: task for task in plan.tasks}
        self._groups = {group.id: group for group in plan.groups}
        self.signatures: list[Signature] = []
        self.tasks: Item = {}
        self._last_group = ""
        self._before: dict[str, set[str]] = {}  # of each task, all tasks that end before it begins
        for task in ordered(grouped(self._tasks)):
            self._add(task.id)

    def _add(self, id_: str) -> None:
        group = self._groups.get(id_)
        wires = step_wires(self._tasks[id_]) if group is None else outer_wires(self._tasks.values(), group)
        component = self._tasks[id_].component if group is None else ""
        inputs = {name: self._port(wire).type for name, wire in wires.items()}
        self.signatures.append(task_signature(id_, component, inputs, self._outputs(id_)))
        channels = {name: self._channel(wire) for name, wire in wires.items()}
        common = {name: _output(BEGIN, name) for name in ("run_dir", "settings")}
        given = {name: _output(*channel) for name, channel in channels.items()}
        after = {BEGIN, *(task for task, _ in channels.values())}
        if group is not None:
            # A group locks the run directory, so independent groups run one after another.
            if self._last_group and self._last_group not in self._all_before(after):
                after.add(self._last_group)
            self._last_group = id_
        self._before[id_] = self._all_before(after)
        self.tasks[id_] = _task(id_, common | given, after)

    def _all_before(self, after: set[str]) -> set[str]:
        """Return these tasks and all that end before them."""
        return after.union(*(self._before.get(task, ()) for task in after))

    def _outputs(self, id_: str) -> dict[str, Port]:
        if id_ not in self._groups:
            return read_interface(self._tasks[id_].component).outputs
        outside = (wire for task in self._tasks.values() if task.group != id_ for wire in task.inputs.values())
        needed = {wire for wire in outside if isinstance(wire, FromTask)}
        return {name: self._port(wire) for name, wire in self._groups[id_].carried.items() if wire in needed}

    def _port(self, wire: FromTask) -> Port:
        return read_interface(self._tasks[wire.task].component).outputs[wire.output]

    def _channel(self, wire: FromTask) -> tuple[str, str]:
        """Return the task and the output that hand on a value: the step's own, or of the group that carries it."""
        group = self._tasks[wire.task].group
        if not group:
            return wire.task, wire.output
        return group, next(name for name, carried in self._groups[group].carried.items() if carried == wire)


_SUBMITTER = "Name of the person who starts the run, for its records"
_PLACE = {"run_id": "string", "run_name": "string", "workspace": "string"}


def _begin_signature(form: Sequence[FormField]) -> Signature:
    inputs = {"recipe": "string"} | {field.name: field.type for field in form} | {SUBMITTED_BY: "string"}
    outputs = {"run_dir": "string", "settings": "string"}
    return Signature(BEGIN, call="begin", first="", common=_PLACE, inputs=inputs, outputs=outputs)


def _end_signature() -> Signature:
    return Signature(END, call="end", first="", common=_PLACE, inputs={}, status=True)


def check_constants(specification: Item) -> None:
    """Check that no constant holds a placeholder besides text: KFP replaces it only where it is the whole constant.

    Raises:
        UserError: with the task, the input, and what to change.
    """
    for name, declared in specification["root"].get("inputDefinitions", {}).get("parameters", {}).items():
        if PLACEHOLDER in str(declared.get("defaultValue", "")):
            raise UserError(
                f"the form's field {name} has a default that holds {PLACEHOLDER!r}; remove it from the recipe"
            )
    for name, task in _all_tasks(specification).items():
        for given, wire in task.get("inputs", {}).get("parameters", {}).items():
            text = wire.get("runtimeValue", {}).get("constant", "")
            if PLACEHOLDER in text and not (text.startswith("{{$.") and text.find("}}") == len(text) - 2):
                raise UserError(
                    f"task {name}: its input {given} holds {PLACEHOLDER!r} inside a longer text, which Kubeflow "
                    "would not replace and Argo may take for a template; remove it from the recipe's values"
                )


def check_names(specification: Item) -> None:
    """Check that the names of a pipeline and its tasks fit where Kubeflow and Kubernetes store them.

    Raises:
        UserError: with the name, its length and the limit.
    """
    tasks = _all_tasks(specification)
    limits = {specification["pipelineInfo"]["name"]: PIPELINE_NAME, **dict.fromkeys(tasks, LABEL_VALUE)}
    for name, limit in limits.items():
        if len(name) > limit:
            raise UserError(f"{name}: has {len(name)} characters, and Kubeflow takes {limit}; give it a shorter name")


def _all_tasks(specification: Item) -> Item:
    """Return the tasks of a pipeline by name, inner ones included."""
    graphs = (component["dag"] for component in specification["components"].values() if "dag" in component)
    return {name: task for dag in (specification["root"]["dag"], *graphs) for name, task in dag["tasks"].items()}


def form_values(recipe: Recipe) -> dict[str, Any]:
    """Return the arguments with which a pipeline compiled for a cluster becomes this recipe's run."""
    return {field.name: field.value_in(recipe.parameters) for field in recipe.form}


def write_ir(pipeline: PipelineIr, path: Path) -> None:
    """Write the pipeline's intermediate representation, which ``kfp.components.load_component_from_file`` reads."""
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(f"{path}: KFP writes pipelines as YAML; end the name in .yaml")
    write_output(path, ir_text(pipeline))


def ir_text(pipeline: PipelineIr) -> str:
    """Return the intermediate representation as YAML."""
    import yaml

    class Dumper(yaml.CSafeDumper):  # here, since yaml is imported only where it is used
        def ignore_aliases(self, data: Any) -> bool:
            return True

    head = "".join(
        f"# {key}: {' '.join(text.split())}\n" for key, text in pipeline.specification["pipelineInfo"].items()
    )
    body: str = yaml.dump_all([pipeline.specification, pipeline.platform], Dumper=Dumper)
    return head + body
