"""Inputs of a plan's tasks, and the plan as a file of the run directory.

On a cluster, the first step writes ``plan.json``. Every other step reads its settings from this file and receives only
the outputs of earlier steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.config.task import RUN_DIR, Constant, FromParameter, FromTask, Group, Plan, Task, Wire
from platform_sdk.config.whole import whole_numbers
from platform_sdk.files import read_model, read_object, write_text
from platform_sdk.run_dir import RunDir
from platform_sdk.tracking import manifest

FILE, OUTPUTS = RunDir.plan, RunDir.outputs
PATHS = (RUN_DIR, "data_dir")
"""Inputs that name folders on this machine; the digests of the files in them are recorded apart."""
Outputs = Mapping[str, Mapping[str, Any]]
"""Outputs of finished tasks by task id."""


def inputs_of(task: Task, parameters: Mapping[str, Any], run_dir: Path, outputs: Outputs) -> dict[str, Any]:
    """Return the values of a task's inputs, as plain JSON."""
    return {name: _value(wire, parameters, run_dir, outputs) for name, wire in task.inputs.items()}


def settings_of(task: Task, inputs: Mapping[str, Any]) -> str:
    """Return the digest of a task's settings: its component and inputs, without paths and outputs of other tasks.

    Args:
        task: The task.
        inputs: The values of its inputs.
    """
    own = (name for name, wire in task.inputs.items() if not isinstance(wire, FromTask) and name not in PATHS)
    return manifest.digest_of({"component": task.component, "inputs": {name: inputs[name] for name in own}})


def carried_by(group: Group, parameters: Mapping[str, Any], run_dir: Path, outputs: Outputs) -> dict[str, Any]:
    """Return the outputs of a group of tasks."""
    return {name: _value(wire, parameters, run_dir, outputs) for name, wire in group.carried.items()}


def _value(wire: Wire, parameters: Mapping[str, Any], run_dir: Path, outputs: Outputs) -> Any:
    match wire:
        case Constant(value=value):
            pass
        case FromParameter(name=name):
            value = str(run_dir) if name == RUN_DIR else parameters[name]
        case FromTask(task=task, output=output):
            value = outputs[task][output]
    return whole_numbers(value) if isinstance(value, dict | list) else value


class _Wire(Struct):
    """A constant, or the output of a task."""

    value: Any = None
    task: str = ""
    output: str = ""


class _Task(Struct):
    id: str
    component: str
    group: str = ""
    inputs: dict[str, _Wire] = Field(default_factory=dict)


class _Group(Struct):
    id: str
    carried: dict[str, _Wire]


class _Document(Struct):
    tasks: tuple[_Task, ...]
    groups: tuple[_Group, ...]


def write_plan(run_dir: Path, plan: Plan, parameters: Mapping[str, Any]) -> None:
    """Write a plan with the values of its parameters into the run directory."""

    def stored(wires: Mapping[str, Wire]) -> dict[str, _Wire]:
        return {
            name: _Wire(task=wire.task, output=wire.output)
            if isinstance(wire, FromTask)
            else _Wire(value=_value(wire, parameters, run_dir, {}))
            for name, wire in wires.items()
        }

    document = _Document(
        tasks=tuple(
            _Task(id=task.id, component=task.component, group=task.group, inputs=stored(task.inputs))
            for task in plan.tasks
        ),
        groups=tuple(_Group(id=group.id, carried=stored(group.carried)) for group in plan.groups),
    )
    text = json.dumps(document.model_dump(mode="json", exclude_defaults=True), indent=1, ensure_ascii=False)
    write_text(run_dir / FILE, text + "\n")


def read_plan(run_dir: Path) -> Plan:
    """Read the plan of a run.

    Raises:
        UserError: the run was never started, or the file is damaged.
    """
    if not (run_dir / FILE).is_file():
        raise UserError(f"{run_dir / FILE}: no such file, since the step begin has not run; see its log")
    document = read_model(run_dir / FILE, _Document)

    def wires(stored: Mapping[str, _Wire]) -> dict[str, Wire]:
        return {
            name: FromTask(one.task, one.output) if one.task else Constant(one.value) for name, one in stored.items()
        }

    return Plan(
        tuple(Task(one.id, one.component, wires(one.inputs), one.group) for one in document.tasks),
        tuple(Group(one.id, wires(one.carried)) for one in document.groups),
    )


def record_outputs(run_dir: Path, task: str, outputs: Mapping[str, Any]) -> None:
    """Write the outputs of a finished task into the run directory."""
    write_text(run_dir / OUTPUTS / f"{task}.json", json.dumps(outputs, indent=1, ensure_ascii=False) + "\n")


def outputs_of(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the outputs of finished tasks by task id."""
    return {path.stem: read_object(path) for path in sorted((run_dir / OUTPUTS).glob("*.json"))}
