"""A pipeline with a recipe's values, unrolled into tasks whose inputs are wired and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from platform_sdk.config.checks import Link, waiting_for_each_other
from platform_sdk.config.components import Interface, component_names, read_interface
from platform_sdk.config.errors import UserError
from platform_sdk.config.pipeline import Pipeline, Repeat, Step
from platform_sdk.config.references import StepOutput, parse
from platform_sdk.config.source import FieldPath, Problem, suggestion
from platform_sdk.config.task import FromTask, Group, Plan, Task, Wire
from platform_sdk.config.wiring import Scope, Wiring
from platform_sdk.display import excerpt

MAX_TASKS = 1000
"""Upper bound of a run's tasks, so that a wrong count is refused at once. On a cluster all iterations are one step."""


def make_plan(pipeline: Pipeline, values: Mapping[str, Any], *, at_least: int = 0) -> tuple[Plan, list[Problem]]:
    """Unroll a pipeline and check its wiring.

    Args:
        values: the value of every parameter; ``UNKNOWN`` for an invalid one.
        at_least: minimum number of iterations of every repeat, so that its inputs and outputs are known.

    Returns:
        The plan, its tasks in topological order, and the problems. With problems the plan is empty.
    """
    unroller = _Unroller(pipeline, values, at_least)
    unroller.unroll()
    for link in unroller.links:
        if message := link.problem(pipeline.document.parameters, unroller.producers, unroller.tasks):
            unroller.problem(link.place, message)
    cycle = waiting_for_each_other(unroller.tasks) or waiting_for_each_other(grouped(unroller.tasks))
    if cycle:
        place = unroller.places.get(cycle[0], ("steps",))
        unroller.problem(place, f"the steps wait for each other: {', '.join(cycle)}")
    problems = list(dict.fromkeys(unroller.wiring.problems))
    return (Plan() if problems else Plan(ordered(unroller.tasks), tuple(unroller.groups))), problems


class _Unroller:
    def __init__(self, pipeline: Pipeline, values: Mapping[str, Any], at_least: int) -> None:
        self.at_least = at_least
        self.pipeline = pipeline
        self.wiring = Wiring(pipeline, values)
        self.problem = self.wiring.problem
        self.steps = pipeline.document.placed_steps()
        self.interfaces: dict[str, Interface | None] = {}  # of components; None: it cannot be read
        self.producers: dict[str, Interface | None] = {}  # of tasks, left-out ones too
        self.tasks: dict[str, Task] = {}
        self.places: dict[str, FieldPath] = {}
        self.links: list[Link] = []
        self.groups: list[Group] = []

    def unroll(self) -> None:
        self._check_ids()
        for step, path in self.steps:
            self._read_interface(step, path)
        for index, block in enumerate(self.pipeline.document.steps):
            if isinstance(block, Step):
                self._add(block, ("steps", index), block.id, self.wiring.outer)
            else:
                self._repeat(block.repeat, ("steps", index, "repeat"), self.wiring.outer)
        self._check_shared()
        self._add_groups()

    def _add_groups(self) -> None:
        """Add the groups that steps name themselves, with the outputs that other tasks take from them."""
        known = {found.id for found in self.groups}
        for name in dict.fromkeys(task.group for task in self.tasks.values() if task.group not in ("", *known)):
            inside = {task.id for task in self.tasks.values() if task.group == name}
            taken = [wire for task in self.tasks.values() if task.group != name for wire in task.inputs.values()]
            taken += [wire for group in self.groups for wire in group.carried.values()]
            wires = [wire for wire in taken if isinstance(wire, FromTask) and wire.task in inside]
            self.groups.append(Group(name, {f"{wire.task}_{wire.output}".replace("-", "_"): wire for wire in wires}))
            if name in self.tasks:
                self.problem(self.places[name], f"there is a group {excerpt(name)} too; name the step differently")

    def _check_ids(self) -> None:
        seen: dict[str, FieldPath] = {}
        for step, path in self.steps:
            if step.id in seen:
                first = self.pipeline.source.place((*seen[step.id], "id"))
                self.problem((*path, "id"), f"there is a step {excerpt(step.id)} already ({first}); give it another id")
            seen.setdefault(step.id, path)

    def _read_interface(self, step: Step, path: FieldPath) -> None:
        if step.component in self.interfaces:
            return
        try:
            self.interfaces[step.component] = read_interface(step.component)
        except UserError as error:
            self.interfaces[step.component] = None
            known = component_names()
            remedy = "" if step.component in known else f"; {suggestion(step.component, known)}"
            self.problem((*path, "component"), f"{error}{remedy}")

    def _repeat(self, repeat: Repeat, path: FieldPath, outer: Scope) -> None:
        count = self.wiring.fixed(repeat.count, (*path, "count"), "integer", fallback=1, of_form=True)
        if count < 0:
            self.problem((*path, "count"), f"must be 0 or more, but is {count}")
        lags = {}
        for name, carry in repeat.carry.items():
            place = (*path, "carry", name, "lag")
            lag = self.wiring.fixed(carry.lag, place, None, fallback=0)
            if lag not in (0, 1):
                self.problem(place, f"must be 0 or 1 (or false or true), but is {excerpt(lag)}")
            lags[name] = int(bool(lag))
        loop = f"{repeat.as_}s"
        if any(found.id == loop for found in self.groups) or loop in self.producers:
            self.problem((*path, "as"), f"there is a step or repeat {loop} already; name this iteration differently")
        # history[name][t] is the value after iteration t; before the first it is the initial one.
        history: dict[str, list[Wire | None]] = {
            name: [self.wiring.wire(carry.initial, (*path, "carry", name, "initial"), outer)]
            for name, carry in repeat.carry.items()
        }
        # Iterations without a step take time, too.
        each = max(1, sum(step.id not in self.wiring.left_out for step in repeat.steps))
        if len(self.tasks) + count * each > MAX_TASKS:
            self.problem(
                (*path, "count"),
                f"{count} iterations of {each} steps make more than {MAX_TASKS} tasks; lower the number of iterations",
            )
            count = 1
        for iteration in range(1, max(count, self.at_least) + 1):
            scope = Scope(
                steps=outer.steps | {step.id: f"{step.id}-{iteration:02d}" for step in repeat.steps},
                carried=outer.carried
                | {name: past[carried_from(iteration, lags[name])] for name, past in history.items()},
                counter=(repeat.as_, iteration),
            )
            for index, step in enumerate(repeat.steps):
                self._add(step, (*path, "steps", index), scope.steps[step.id], scope, loop)
            for name, carry in repeat.carry.items():
                history[name].append(self.wiring.wire(carry.next, (*path, "carry", name, "next"), scope))
        for name, past in history.items():
            if name in outer.carried:
                self.problem((*path, "carry", name), "another repeat carries this name already; use another one")
            outer.carried[name] = past[-1]
        carried = {name: wire for name, past in history.items() if (wire := past[-1]) is not None}
        self.groups.append(Group(loop, carried))

    def _add(self, step: Step, path: FieldPath, id: str, scope: Scope, group: str = "") -> None:
        if id in self.producers:
            return  # a second step of this id, which is a problem already
        interface = self.producers[id] = self.interfaces[step.component]
        self._check_stand_ins(step, path, scope)
        if step.id in self.wiring.left_out:
            return
        places: dict[str, FieldPath] = {name: (*path, "inputs", name) for name in step.inputs}
        wires = {name: self.wiring.wire(value, places[name], scope) for name, value in step.inputs.items()}
        for name in self.pipeline.document.inputs:
            if interface is not None and name in interface.inputs and name not in places:
                places[name] = ("inputs", name)
                wires[name] = self._shared(name, step)
        found = {name: wire for name, wire in wires.items() if wire is not None}
        self.tasks[id] = Task(id, step.component, found, group or step.group)
        self.places[id] = path
        if interface is None:
            return
        for name in [name for name in places if name not in interface.inputs]:
            known = suggestion(name, interface.inputs)
            self.problem(places[name], f"component {step.component} has no input {excerpt(name)}; {known}")
        for name, port in interface.inputs.items():
            if name not in places and port.required:
                message = f"component {step.component} needs the input {excerpt(name)} ({port.type})"
                self.problem((*path, "inputs"), message)
            elif name in found:
                self.links.append(Link(found[name], port, places[name], step.component))

    def _check_stand_ins(self, step: Step, path: FieldPath, scope: Scope) -> None:
        interface = self.interfaces[step.component]
        for output in step.instead:
            place = (*path, "instead", output)
            wire = self.wiring.stand_in(step, path, output, scope)
            if interface is not None and output not in interface.outputs:
                known = suggestion(output, interface.outputs)
                self.problem(place, f"component {step.component} has no output {excerpt(output)}; {known}")
            elif interface is not None and wire is not None:
                self.links.append(Link(wire, interface.outputs[output], place, step.component, stand_in=True))

    def _shared(self, name: str, step: Step | None = None) -> Wire | None:
        """Return the wire of an entry of the pipeline's ``inputs``, for the step that gets it if one does."""
        place: FieldPath = ("inputs", name)
        value = self.pipeline.document.inputs[name]
        wire = self.wiring.wire(value, place, Scope(steps=self.wiring.outer.steps))
        if wire is None or step is None or not isinstance(reference := parse(value), StepOutput):
            return wire
        order = [declared.id for declared, _ in self.steps]
        if order.index(step.id) > order.index(reference.step):
            return wire
        self.problem(
            place,
            f"step {step.id} gets this input, but does not come after step {reference.step}, whose output it is; "
            f"give step {step.id} a {name} of its own",
        )
        return None

    def _check_shared(self) -> None:
        """Check every entry of the pipeline's ``inputs``, even if every step replaces it by its own input."""
        known = {name for found in self.interfaces.values() if found for name in found.inputs}
        for name in self.pipeline.document.inputs:
            self._shared(name)
            if name not in known and None not in self.interfaces.values():
                self.problem(("inputs", name), f"no step's component has this input; {suggestion(name, known)}")


def grouped(tasks: Mapping[str, Task]) -> dict[str, Task]:
    """Return the tasks of a cluster: every group as one task, with what its tasks need from outside."""
    found: dict[str, Task] = {}
    for task in tasks.values():
        id = task.group or task.id
        wires = {**(found[id].inputs if id in found else {}), **{f"{task.id} {n}": w for n, w in task.inputs.items()}}
        found[id] = Task(id, task.component, wires)
    place = {task.id: task.group or task.id for task in tasks.values()}

    def moved(wire: Wire, id: str) -> Wire | None:
        if not isinstance(wire, FromTask) or wire.task not in place:
            return None
        return None if place[wire.task] == id else FromTask(place[wire.task], wire.output)

    return {
        id: Task(id, task.component, {n: new for n, w in task.inputs.items() if (new := moved(w, id)) is not None})
        for id, task in found.items()
    }


def ordered(tasks: Mapping[str, Task]) -> tuple[Task, ...]:
    """Return the tasks in the order they are declared in, but none before one that it needs."""
    done: dict[str, Task] = {}

    def visit(id: str) -> None:
        if id not in done:
            for upstream in sorted(tasks[id].upstream, key=list(tasks).index):
                visit(upstream)
            done[id] = tasks[id]

    for id in tasks:
        visit(id)
    return tuple(done.values())


def carried_from(iteration: int, lag: int) -> int:
    """Return the iteration whose outcome iteration ``iteration`` (from 1) starts from; 0: the initial value.

    With a lag the second iteration still waits for the first, as MyGO's overlap begins at iteration 2.
    """
    return min(iteration - 1, max(1, iteration - 1 - lag))
