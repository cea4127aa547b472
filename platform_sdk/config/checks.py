"""Checks of an unrolled pipeline: every wire has the type of its port, and no tasks wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from platform_sdk.config.components import Interface, Port
from platform_sdk.config.parameter import Parameter, has_type
from platform_sdk.config.source import FieldPath, suggestion
from platform_sdk.config.task import RUN_DIR, UNKNOWN, Constant, FromParameter, FromTask, Task, Wire
from platform_sdk.display import excerpt


@dataclass(frozen=True)
class Link:
    """A wire, and the port that it must fit: a component's input, or the output that it replaces."""

    wire: Wire
    port: Port
    place: FieldPath
    component: str
    stand_in: bool = False

    def problem(
        self,
        parameters: Mapping[str, Parameter],
        producers: Mapping[str, Interface | None],
        tasks: Mapping[str, Task],
    ) -> str | None:
        """Return why the wire does not fit; ``producers`` are the components of all tasks, left-out ones included."""
        port = self.port
        match self.wire:
            case Constant(value=value):
                if value is UNKNOWN or has_type(value, port.type):
                    return None
                found = f"is {excerpt(value)}"
            case FromParameter(name=name):
                type_ = "string" if name == RUN_DIR else parameters[name].type
                if type_ == port.type:
                    return None
                found = f"parameter {name} is of type {type_}"
            case FromTask(task=task, output=output):
                if (interface := producers[task]) is None:
                    return None
                if output not in interface.outputs:
                    known = suggestion(output, interface.outputs)
                    return f"component {interface.component} has no output {excerpt(output)}; {known}"
                if task not in tasks and not self.stand_in:
                    return (
                        f"needs the step {task}, which its `when` leaves out; give that step a stand-in for the output:"
                        f" instead: {{{output}: …}}"
                    )
                given = interface.outputs[output]
                if given.type == port.type:
                    return None
                found = f"output {output} of {task} is of type {given.type}"
        taker = f" for component {self.component}" if self.place[0] == "inputs" else ""
        return f"must be of type {port.type}{taker}, but {found}"


def waiting_for_each_other(tasks: Mapping[str, Task]) -> list[str]:
    """Return the tasks that can never start since each needs another of them."""
    rest = dict(tasks)
    while free := [id for id, task in rest.items() if not task.upstream & rest.keys()]:
        for id in free:
            del rest[id]
    # Among the remaining tasks, those that another remaining task needs are on the cycles.
    needed = {upstream for task in rest.values() for upstream in task.upstream}
    return [id for id in rest if id in needed]
