"""``${…}``: how the inputs of a step refer to parameters, outputs and carried values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from platform_sdk.display import excerpt

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_SYNTAX = (
    "${parameters.NAME}, ${parameters.NAME.FIELD}, ${steps.ID.outputs.NAME}, ${carry.NAME}, ${iteration}, "
    "${run.dir}, ${run.method}"
)


class BadReference(ValueError):
    """Text between ``${`` and ``}`` that refers to nothing."""


@dataclass(frozen=True)
class ParameterPart:
    """``${parameters.NAME.FIELD…}``; ``fields`` is empty for the whole parameter."""

    name: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepOutput:
    """``${steps.ID.outputs.NAME}``."""

    step: str
    output: str


@dataclass(frozen=True)
class CarriedValue:
    """``${carry.NAME}``: inside a repeat the value of this iteration, after it the last one."""

    name: str


@dataclass(frozen=True)
class Counter:
    """``${iteration}`` (or what ``as`` calls it): the number of the iteration, from 1."""

    name: str


@dataclass(frozen=True)
class RunFact:
    """``${run.dir}``, the run directory, or ``${run.method}``, the pipeline's method."""

    name: str


Reference = ParameterPart | StepOutput | CarriedValue | Counter | RunFact


@dataclass(frozen=True)
class Template:
    """Text with references, e.g. ``iteration-${iteration}``, as alternating plain text and references."""

    parts: tuple[str | Reference, ...]


def parse(value: Any) -> Any:
    """A Reference, a Template, or the value itself where it refers to nothing.

    Raises:
        BadReference: a reference has none of the known forms.
    """
    if not isinstance(value, str) or "${" not in value:
        return value
    pieces = _REFERENCE.split(value)
    if any("${" in text for text in pieces[::2]):
        raise BadReference(f"{excerpt(value)}: a reference has no closing brace, or braces inside it")
    parts = tuple(
        piece if index % 2 == 0 else _reference(piece) for index, piece in enumerate(pieces) if piece or index % 2
    )
    if len(parts) == 1 and not isinstance(parts[0], str):
        return parts[0]
    return Template(parts)


def _reference(text: str) -> Reference:
    match text.split("."):
        case ["parameters", name, *fields] if all([name, *fields]):
            return ParameterPart(name, tuple(fields))
        case ["steps", step, "outputs", output] if step and output:
            return StepOutput(step, output)
        case ["carry", name] if name:
            return CarriedValue(name)
        case ["run", ("dir" | "method") as name]:
            return RunFact(name)
        case [name] if name.isidentifier():
            return Counter(name)
    raise BadReference(f"${{{text}}} is not a reference; references are {_SYNTAX}")
