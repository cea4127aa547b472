"""Settings of a recipe as MLflow's parameters, and names and values as MLflow accepts them."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

PARAM_LENGTH = 6000
NAME_LENGTH = 250


def recipe_params(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return a resolved recipe as parameters: nested settings by their dotted names, clipped as MLflow stores them."""
    return {name: clip(value, PARAM_LENGTH) for name, value in _flat(dict(recipe))}


def mlflow_names(values: Mapping[str, str]) -> dict[str, str]:
    """Return values under the names that MLflow accepts. MLflow refuses a batch with two values of one name."""
    return {mlflow_name(name): value for name, value in values.items()}


def mlflow_name(name: str) -> str:
    """Return the name of a parameter, metric or tag with ``_`` for what MLflow refuses, and at most 250 characters."""
    allowed = re.sub(r"[^\w.\- :/]", "_", name)[:NAME_LENGTH]
    if posixpath.normpath(allowed) == allowed and not allowed.startswith(("/", "..")) and allowed != ".":
        return allowed
    return allowed.replace("/", "_").lstrip(".") or "_"  # MLflow takes names for relative paths


def clip(value: str, length: int) -> str:
    """Return a text with at most ``length`` characters."""
    return value if len(value) <= length else value[: length - 1] + "…"


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix.removeprefix("parameters."), value if isinstance(value, str) else json.dumps(value)
