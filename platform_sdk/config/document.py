"""A YAML file as a pydantic model, and its problems with line numbers."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from platform_sdk.config.source import ConfigError, FieldPath, Problem, Source, load_source
from platform_sdk.display import excerpt

M = TypeVar("M", bound=BaseModel)

_USES = {
    "study": "is a study; use it with hopforge study",
    "pipeline": "is a pipeline; give a recipe that names it as its pipeline",
    "recipe": "is a recipe; use it with hopforge run, or name it in a study's recipe",
}


def read_as(model: type[M], path: Path) -> M:
    """Read a YAML file that holds a ``model``.

    Raises:
        ConfigError: with every problem there is.
    """
    return validated(model, load_source(path))


def validated(model: type[M], source: Source) -> M:
    """Return the ``model`` that a YAML document holds.

    Raises:
        ConfigError: with every problem there is, at its line.
    """
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        if other := _other_kind(model, source.data):
            raise ConfigError([source.problem((), other)]) from error
        raise ConfigError([*source.repeated, *_problems(error, source)]) from error


def _other_kind(model: type[BaseModel], data: Any) -> str | None:
    """Return the kind and use of a document that is no ``model`` but of another kind."""
    kind = _kind(data.keys()) if isinstance(data, dict) else None
    return None if kind is None or kind == _kind(model.model_fields.keys()) else _USES[kind]


def _kind(keys: Collection[str]) -> str | None:
    """Return the kind of a file with these keys at its top; None if they show none."""
    if "axes" in keys:
        return "study"
    if "steps" in keys or "extends" in keys:
        return "pipeline"
    return "recipe" if "pipeline" in keys and "name" in keys and "recipe" not in keys else None


def causes(error: ValidationError) -> list[ErrorDetails]:
    """Return the errors without those that follow from others: a list is not too short if its entries were refused."""
    found = error.errors()

    def has_refused_entries(place: tuple[int | str, ...]) -> bool:
        return any(len(item["loc"]) > len(place) and item["loc"][: len(place)] == place for item in found)

    return [item for item in found if item["type"] != "too_short" or not has_refused_entries(item["loc"])]


def _problems(error: ValidationError, source: Source) -> list[Problem]:
    problems = []
    for item in causes(error):
        location = item["loc"]
        if location[:1] == ("steps",) and len(location) > 2:
            location = location[:2] + location[3:]  # without the tag of the union that pydantic puts there
        path = tuple(part for part in location if part != "[key]")
        problems.append(source.problem(path, _message(item["type"], item["msg"], item["input"])))
    return problems


def _message(type_: str, message: str, value: Any) -> str:
    if type_ == "extra_forbidden":
        return "is not known here; remove it"
    if type_ == "missing":
        return "is required; add it"
    given = "" if isinstance(value, (dict, list)) else f" (it is {excerpt(value)})"
    return readable(message) + given


def field_path(location: tuple[int | str, ...], given: Any, type_: str) -> FieldPath:
    """Return the path in ``given`` of a pydantic location, without the parts that name a branch of a union."""
    path: list[int | str] = []
    for depth, part in enumerate(location):
        inside = (isinstance(given, dict) and part in given) or (
            isinstance(given, list) and isinstance(part, int) and part < len(given)
        )
        last_missing = type_ == "missing" and depth == len(location) - 1
        if inside or last_missing:
            path.append(part)
            given = given[part] if inside else None
    return tuple(path)


def readable(message: str) -> str:
    """Return a pydantic message without pydantic's type names."""
    message = message.removeprefix("Value error, ")
    return re.sub(r"^\w+ should have (.+) after validation, not (.+)$", r"must have \1, not \2", message)
