"""References resolved to wires, at one place of a pipeline and with a recipe's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from platform_sdk.config.bounded_yaml import MAX_DEPTH
from platform_sdk.config.parameter import has_type
from platform_sdk.config.pipeline import Pipeline, Step
from platform_sdk.config.references import (
    BadReference,
    CarriedValue,
    Counter,
    ParameterPart,
    Reference,
    RunFact,
    StepOutput,
    Template,
    parse,
)
from platform_sdk.config.source import FieldPath, Problem, suggestion
from platform_sdk.config.task import RUN_DIR, UNKNOWN, Constant, FromParameter, FromTask, Wire
from platform_sdk.display import excerpt


@dataclass
class Scope:
    """The meaning of the names in references at one place of a pipeline."""

    steps: dict[str, str] = field(default_factory=dict)  # step id -> task id
    carried: dict[str, Wire | None] = field(default_factory=dict)  # None: could not be worked out
    counter: tuple[str, int] | None = None


class Wiring:
    """Resolve references, and note the problems of those that cannot be resolved.

    ``outer`` is the scope of the steps outside repeats, ``left_out`` the steps that their ``when`` leaves out.
    """

    def __init__(self, pipeline: Pipeline, values: Mapping[str, Any]) -> None:
        self.pipeline = pipeline
        self.values = values
        self.problems: list[Problem] = []
        steps = pipeline.document.placed_steps()
        self.inner = {step.id for step, path in steps if "repeat" in path}
        self.outer = Scope(steps={step.id: step.id for step, path in steps if "repeat" not in path})
        self.left_out: dict[str, tuple[Step, FieldPath]] = {}
        self._standing_in: list[str] = []
        for step, path in steps:
            if not self.fixed(step.when, (*path, "when"), "boolean", fallback=True):
                self.left_out[step.id] = (step, path)

    def problem(self, path: FieldPath, message: str) -> None:
        self.problems.append(self.pipeline.source.problem(path, message))

    def wire(self, value: Any, path: FieldPath, scope: Scope) -> Wire | None:
        """Return the wire of an input; None for an invalid one, whose problem is recorded."""
        try:
            parsed = parse(value)
        except BadReference as error:
            self.problem(path, str(error))
            return None
        match parsed:
            case Template(parts=parts):
                texts = [part if isinstance(part, str) else self._text(part, path, scope) for part in parts]
                return None if None in texts else Constant("".join(text for text in texts if text is not None))
            case ParameterPart() | StepOutput() | CarriedValue() | Counter() | RunFact():
                return self._resolve(parsed, path, scope)
        return Constant(value)

    def stand_in(self, step: Step, path: FieldPath, output: str, scope: Scope) -> Wire | None:
        """Return the wire that replaces an output of a left-out step; ``scope`` is the scope of the reference."""
        self._standing_in.append(step.id)
        here = scope if step.id in self.inner else self.outer
        wire = self.wire(step.instead[output], (*path, "instead", output), here)
        self._standing_in.pop()
        return wire

    def fixed(self, value: Any, path: FieldPath, type_: str | None, *, fallback: int, of_form: bool = False) -> Any:
        """Return a value that shapes the pipeline and so must be known when it is compiled.

        Args:
            fallback: result for an invalid value.
            of_form: allow a parameter of the form; its value is then the recipe's.
        """
        wire = self.wire(value, path, Scope())
        if of_form and isinstance(wire, FromParameter) and wire.name in self.pipeline.run_time:
            wire = Constant(self.values[wire.name])
        if wire is None or (isinstance(wire, Constant) and wire.value is UNKNOWN):
            return fallback
        if not isinstance(wire, Constant):
            self.problem(path, "shapes the pipeline, so it must be a value or a parameter outside the form")
            return fallback
        if type_ is not None and not has_type(wire.value, type_):
            self.problem(path, f"must be of type {type_}, but is {excerpt(wire.value)}")
            return fallback
        return wire.value

    def _text(self, reference: Reference, path: FieldPath, scope: Scope) -> str | None:
        """Return the text of a reference inside a text; the iteration's number has two digits there."""
        wire = None if isinstance(reference, StepOutput) else self._resolve(reference, path, scope)
        if isinstance(reference, StepOutput) or not isinstance(wire, Constant | None):
            self.problem(path, "only the iteration, ${run.method} and parameters outside the form can be in a text")
            return None
        if wire is None:
            return None
        return f"{wire.value:02d}" if isinstance(reference, Counter) else str(wire.value)

    def _resolve(self, reference: Reference, path: FieldPath, scope: Scope) -> Wire | None:
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
            case CarriedValue(name=name):
                if name not in scope.carried:
                    self.problem(path, f"nothing is carried as {excerpt(name)} here; {suggestion(name, scope.carried)}")
                    return None
                return scope.carried[name]
            case StepOutput(step=step, output=output):
                return self._output(step, output, path, scope)
            case ParameterPart(name=name, fields=fields):
                return self._parameter(name, fields, path)

    def _output(self, step: str, output: str, path: FieldPath, scope: Scope) -> Wire | None:
        if step not in scope.steps:
            remedy = "it is inside a repeat: carry its output" if step in self.inner else suggestion(step, scope.steps)
            self.problem(path, f"there is no step {excerpt(step)} to refer to here; {remedy}")
            return None
        if step in self._standing_in:
            self.problem(path, f"refers to step {step}, which it stands in for; name an output of another step")
            return None
        if len(self._standing_in) > MAX_DEPTH:
            self.problem(path, f"is a chain of more than {MAX_DEPTH} stand-ins; name an output of a step that is kept")
            return None
        if step in self.left_out and output in self.left_out[step][0].instead:
            return self.stand_in(*self.left_out[step], output, scope)
        return FromTask(scope.steps[step], output)

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
        value, model = self.values[name], declared[name].model()
        for depth, part in enumerate(fields):
            if value is UNKNOWN:
                break
            field = getattr(model, "model_fields", {}).get(part)
            model = None if field is None else field.annotation
            if isinstance(value, Mapping) and field is not None and field.exclude_if is not None and part not in value:
                value = field.get_default(call_default_factory=True)  # recipes leave it out at its default
                continue
            if not isinstance(value, Mapping) or part not in value:
                known = suggestion(part, value) if isinstance(value, Mapping) else "that is not a struct"
                self.problem(
                    path, f"parameter {'.'.join((name, *fields[:depth]))} has no field {excerpt(part)}; {known}"
                )
                return None
            value = value[part]
        return Constant(value)
