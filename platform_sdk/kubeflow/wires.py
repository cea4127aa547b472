"""Inputs and outputs between the steps of a pipeline on a cluster: names, digests and small structs."""

from __future__ import annotations

from collections.abc import Iterable

from platform_sdk.config.task import FromTask, Group, Task


def step_wires(task: Task) -> dict[str, FromTask]:
    """Return the inputs of a task from earlier tasks."""
    return {name: wire for name, wire in task.inputs.items() if isinstance(wire, FromTask)}


def outer_wires(tasks: Iterable[Task], group: Group) -> dict[str, FromTask]:
    """Return the inputs of a group from tasks outside it, as ``TASK_OUTPUT``."""
    inside = [task for task in tasks if task.group == group.id]
    names = {task.id for task in inside}
    wires = [wire for task in inside for wire in task.inputs.values()] + [*group.carried.values()]
    outer = [wire for wire in wires if isinstance(wire, FromTask) and wire.task not in names]
    return {f"{wire.task}_{wire.output}".replace("-", "_"): wire for wire in outer}
