"""A pipeline with a recipe's values, unrolled into tasks whose inputs are wired and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from platform_sdk.config.components import Interface, Port, read_interface
from platform_sdk.config.errors import UserError
from platform_sdk.config.parameter import has_type
from platform_sdk.config.pipeline import Pipeline, Repeat, RepeatBlock, Step
from platform_sdk.config.references import (
    BadReference,
    Carried,
    Counter,
    ParameterPart,
    Reference,
    RunFact,
    StepOutput,
    Template,
    parse,
)
from platform_sdk.config.source import FieldPath, Problem, suggestion
from platform_sdk.display import excerpt


@dataclass(frozen=True)
class Constant:
    value: Any


@dataclass(frozen=True)
class FromParameter:
    """The value of a parameter that the form sets, wholly or in part; ``run_dir`` is one that every pipeline has."""

    name: str


@dataclass(frozen=True)
class FromTask:
    task: str
    output: str


Wire = Constant | FromParameter | FromTask


class Unknown:
    """The value of a parameter that has a problem of its own."""


UNKNOWN = Unknown()
RUN_DIR = "run_dir"

MAX_TASKS = 400
"""The most tasks of a pipeline. Compiled it has 11 KB and 14 ms a task (329 tasks: 3.6 MB, 4.5 s), and Kubeflow keeps
a workflow and the state of each of its tasks in one object of a database that is made for some megabytes (etcd)."""


@dataclass(frozen=True)
class Task:
    """One step of one iteration: ``id`` is the step's, with the iteration's number behind it (``train-02``)."""

    id: str
    component: str
    inputs: Mapping[str, Wire]

    @property
    def upstream(self) -> set[str]:
        return {wire.task for wire in self.inputs.values() if isinstance(wire, FromTask)}


@dataclass
class _Scope:
    """What the names in a step's references stand for at its place."""

    steps: dict[str, str] = field(default_factory=dict)  # step id -> task id
    carried: dict[str, Wire | None] = field(default_factory=dict)  # None: could not be worked out
    counter: tuple[str, int] | None = None


def make_plan(pipeline: Pipeline, values: Mapping[str, Any]) -> tuple[tuple[Task, ...], list[Problem]]:
    """Unroll a pipeline and check its wiring.

    Args:
        values: The value of every parameter; ``UNKNOWN`` where it has a problem of its own.

    Returns:
        The tasks, each behind those it needs, and the problems. With problems the tasks are incomplete.
    """
    planner = _Planner(pipeline, values)
    planner.unroll()
    planner.check()
    return (() if planner.problems else planner.ordered()), list(dict.fromkeys(planner.problems))


class _Planner:
    def __init__(self, pipeline: Pipeline, values: Mapping[str, Any]) -> None:
        self.pipeline = pipeline
        self.values = values
        self.problems: list[Problem] = []
        self.tasks: dict[str, Task] = {}
        self.places: dict[str, FieldPath] = {}
        self.interfaces: dict[str, Interface | None] = {}
        self.inner: set[str] = set()
        self.left_out: set[str] = set()

    def problem(self, path: FieldPath, message: str) -> None:
        self.problems.append(self.pipeline.source.problem(path, message))

    def unroll(self) -> None:
        blocks = self.pipeline.document.steps
        outer = _Scope(steps={block.id: block.id for block in blocks if isinstance(block, Step)})
        self.inner = {step.id for block in blocks if isinstance(block, RepeatBlock) for step in block.repeat.steps}
        self._check_ids()
        for index, block in enumerate(blocks):
            if isinstance(block, Step):
                self._add(block, ("steps", index), block.id, outer)
            else:
                self._repeat(block.repeat, ("steps", index, "repeat"), outer)

    def _check_ids(self) -> None:
        seen: dict[str, FieldPath] = {}
        for index, block in enumerate(self.pipeline.document.steps):
            places: Sequence[tuple[Step, FieldPath]]
            if isinstance(block, Step):
                places = [(block, ("steps", index, "id"))]
            else:
                places = [(s, ("steps", index, "repeat", "steps", i, "id")) for i, s in enumerate(block.repeat.steps)]
            for step, path in places:
                if step.id in seen:
                    first = self.pipeline.source.place(seen[step.id])
                    self.problem(path, f"there is a step {excerpt(step.id)} already ({first}); give it another id")
                seen.setdefault(step.id, path)

    def _repeat(self, repeat: Repeat, path: FieldPath, outer: _Scope) -> None:
        count = self._fixed(repeat.count, (*path, "count"), "integer", fallback=1)
        if count < 0:
            self.problem((*path, "count"), f"must be 0 or more, but is {count}")
        lags = {}
        for name, carry in repeat.carry.items():
            place = (*path, "carry", name, "lag")
            lag = self._fixed(carry.lag, place, None, fallback=0)
            if lag not in (0, 1):
                self.problem(place, f"must be 0 or 1 (or false or true), but is {excerpt(lag)}")
            lags[name] = int(bool(lag))
        # history[name][t] is the value after iteration t; before the first it is the initial one.
        history: dict[str, list[Wire | None]] = {
            name: [self._wire(carry.initial, (*path, "carry", name, "initial"), outer)]
            for name, carry in repeat.carry.items()
        }
        each = sum(
            bool(self._fixed(step.when, (*path, "steps", index, "when"), "boolean", fallback=True))
            for index, step in enumerate(repeat.steps)
        )
        if len(self.tasks) + count * each > MAX_TASKS:
            self.problem(
                (*path, "count"),
                f"{count} iterations of {each} steps make more than {MAX_TASKS} tasks; a "
                "compiled pipeline is unrolled, so lower the number of iterations",
            )
            count = 1
        for iteration in range(1, count + 1):
            scope = _Scope(
                steps=outer.steps | {step.id: f"{step.id}-{iteration:02d}" for step in repeat.steps},
                carried=outer.carried
                | {name: past[carried_from(iteration, lags[name])] for name, past in history.items()},
                counter=(repeat.as_, iteration),
            )
            for index, step in enumerate(repeat.steps):
                self._add(step, (*path, "steps", index), scope.steps[step.id], scope)
            for name, carry in repeat.carry.items():
                history[name].append(self._wire(carry.next, (*path, "carry", name, "next"), scope))
        for name, past in history.items():
            if name in outer.carried:
                self.problem((*path, "carry", name), "another repeat carries this name already; use another one")
            outer.carried[name] = past[-1]

    def _add(self, step: Step, path: FieldPath, id: str, scope: _Scope) -> None:
        self._interface(step, path)
        if not self._fixed(step.when, (*path, "when"), "boolean", fallback=True):
            self.left_out.add(id)
            return
        wires = {name: self._wire(value, (*path, "inputs", name), scope) for name, value in step.inputs.items()}
        if id not in self.tasks:
            self.tasks[id] = Task(id, step.component, {name: wire for name, wire in wires.items() if wire is not None})
            self.places[id] = path

    def _interface(self, step: Step, path: FieldPath) -> None:
        if step.component in self.interfaces:
            return
        try:
            self.interfaces[step.component] = read_interface(self.pipeline.component_path(step.component))
        except UserError as error:
            self.interfaces[step.component] = None
            folder = self.pipeline.components
            known = sorted(found.parent.name for found in folder.glob("*/component.py"))
            remedy = "" if step.component in known else f"; {suggestion(step.component, known)}"
            self.problem((*path, "component"), f"{error}{remedy}")

    def _wire(self, value: Any, path: FieldPath, scope: _Scope) -> Wire | None:
        """The wire of an input; None where it has a problem, which is noted."""
        try:
            parsed = parse(value)
        except BadReference as error:
            self.problem(path, str(error))
            return None
        match parsed:
            case Template(parts=parts):
                texts = [part if isinstance(part, str) else self._text(part, path, scope) for part in parts]
                return None if None in texts else Constant("".join(text for text in texts if text is not None))
            case ParameterPart() | StepOutput() | Carried() | Counter() | RunFact():
                return self._resolve(parsed, path, scope)
        return Constant(value)

    def _text(self, reference: Reference, path: FieldPath, scope: _Scope) -> str | None:
        """A reference inside a text; the iteration's number has two digits there."""
        wire = self._resolve(reference, path, scope)
        if wire is None:
            return None
        if not isinstance(wire, Constant):
            self.problem(path, "only the iteration, ${run.method} and parameters outside the form can be in a text")
            return None
        return f"{wire.value:02d}" if isinstance(reference, Counter) else str(wire.value)

    def _resolve(self, reference: Reference, path: FieldPath, scope: _Scope) -> Wire | None:
        match reference:
            case RunFact(name="method"):
                return Constant(self.pipeline.document.method)
            case RunFact():
                return FromParameter(RUN_DIR)
            case Counter(name=name):
                if scope.counter is None or scope.counter[0] != name:
                    known = f"here it is ${{{scope.counter[0]}}}" if scope.counter else "it is for steps of a repeat"
                    self.problem(path, f"${{{name}}} is not the number of an iteration here; {known}")
                    return None
                return Constant(scope.counter[1])
            case Carried(name=name):
                if name not in scope.carried:
                    self.problem(path, f"nothing is carried as {excerpt(name)} here; {suggestion(name, scope.carried)}")
                    return None
                return scope.carried[name]
            case StepOutput(step=step, output=output):
                if step not in scope.steps:
                    inside = step in self.inner
                    remedy = "it is inside a repeat: carry its output" if inside else suggestion(step, scope.steps)
                    self.problem(path, f"there is no step {excerpt(step)} to refer to here; {remedy}")
                    return None
                return FromTask(scope.steps[step], output)
            case ParameterPart(name=name, fields=fields):
                return self._parameter(name, fields, path)

    def _parameter(self, name: str, fields: tuple[str, ...], path: FieldPath) -> Wire | None:
        declared = self.pipeline.document.parameters
        if name not in declared:
            self.problem(path, f"there is no parameter {excerpt(name)}; {suggestion(name, declared)}")
            return None
        if name in self.pipeline.run_time:
            if fields:
                self.problem(
                    path,
                    f"${{parameters.{name}.{'.'.join(fields)}}} takes apart what a run may be started with, which "
                    f"Kubeflow cannot: take {name} out of the form, or make the field a parameter of its own",
                )
                return None
            return FromParameter(name)
        value = self.values[name]
        for depth, part in enumerate(fields):
            if value is UNKNOWN:
                break
            if not isinstance(value, Mapping) or part not in value:
                known = suggestion(part, value) if isinstance(value, Mapping) else "that is no struct"
                self.problem(
                    path, f"parameter {'.'.join((name, *fields[:depth]))} has no field {excerpt(part)}; {known}"
                )
                return None
            value = value[part]
        return Constant(value)

    def _fixed(self, value: Any, path: FieldPath, type_: str | None, *, fallback: int) -> Any:
        """A value that shapes the pipeline and so must be known when it is compiled."""
        wire = self._wire(value, path, _Scope())
        if wire is None or (isinstance(wire, Constant) and wire.value is UNKNOWN):
            return fallback
        if not isinstance(wire, Constant):
            self.problem(path, "shapes the pipeline, so it must be a value or a parameter outside the form")
            return fallback
        if type_ is not None and not has_type(wire.value, type_):
            self.problem(path, f"must be of type {type_}, but is {excerpt(wire.value)}")
            return fallback
        return wire.value

    def check(self) -> None:
        """Compare every task's inputs with its component's, and look for cycles."""
        for id, task in self.tasks.items():
            interface, path = self.interfaces[task.component], self.places[id]
            if interface is None:
                continue
            given = self._given(path)
            for name in given - set(interface.inputs):
                message = (
                    f"component {task.component} has no input {excerpt(name)}; {suggestion(name, interface.inputs)}"
                )
                self.problem((*path, "inputs", name), message)
            for name, port in interface.inputs.items():
                if name not in given and port.required:
                    self.problem(
                        (*path, "inputs"), f"component {task.component} needs the input {excerpt(name)} ({port.type})"
                    )
                elif name in task.inputs:
                    self._check_type(task.inputs[name], port, (*path, "inputs", name))
        self._check_cycles()

    def _given(self, path: FieldPath) -> set[str]:
        data: Any = self.pipeline.source.data
        for part in path:
            data = data[part]
        return set(data.get("inputs") or {})

    def _check_type(self, wire: Wire, port: Port, path: FieldPath) -> None:
        found: str
        match wire:
            case Constant(value=value):
                if value is not UNKNOWN and (port.artifact or not has_type(value, port.type)):
                    self.problem(path, f"must be of type {port.type}, but is {excerpt(value)}")
                return
            case FromParameter(name=name):
                found = "string" if name == RUN_DIR else self.pipeline.document.parameters[name].type
                origin = f"parameter {name}"
            case FromTask(task=task) if task in self.left_out:
                self.problem(path, f"needs the step {task}, which its `when` leaves out")
                return
            case FromTask(task=task, output=output):
                interface = self.interfaces[self.tasks[task].component]
                if interface is None:
                    return
                if output not in interface.outputs:
                    known = suggestion(output, interface.outputs)
                    self.problem(
                        path, f"component {self.tasks[task].component} has no output {excerpt(output)}; {known}"
                    )
                    return
                found, origin = interface.outputs[output].type, f"output {output} of {task}"
        if found != port.type and not (port.type == "Artifact" and Port(found).artifact):
            self.problem(path, f"must be of type {port.type}, but {origin} is of type {found}")

    def _check_cycles(self) -> None:
        rest = dict(self.tasks)
        while free := [id for id, task in rest.items() if not task.upstream & rest.keys()]:
            for id in free:
                del rest[id]
        if rest:
            # Among what is left, those that something else left needs lie on the cycles.
            needed = set().union(*(task.upstream for task in rest.values())) & rest.keys()
            names = ", ".join(id for id in rest if id in needed)
            self.problem(
                self.places[next(id for id in rest if id in needed)], f"the steps wait for each other: {names}"
            )

    def ordered(self) -> tuple[Task, ...]:
        """The tasks in the order they are declared in, but none before one that it needs."""
        done: dict[str, Task] = {}

        def visit(id: str) -> None:
            if id not in done:
                for upstream in sorted(self.tasks[id].upstream, key=list(self.tasks).index):
                    visit(upstream)
                done[id] = self.tasks[id]

        for id in self.tasks:
            visit(id)
        return tuple(done.values())


def carried_from(iteration: int, lag: int) -> int:
    """The iteration whose outcome iteration ``iteration`` (from 1) starts from; 0: the initial value.

    With a lag the second iteration still waits for the first, as MyGO's overlap begins at iteration 2.
    """
    return min(iteration - 1, max(1, iteration - 1 - lag))
