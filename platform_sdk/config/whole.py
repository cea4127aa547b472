"""Whole numbers as integers, however a file or a server wrote them."""

from __future__ import annotations

from typing import Any


def whole_numbers(value: Any) -> Any:
    """Return plain data with whole floats as integers, since YAML and JSON do not distinguish them."""
    if isinstance(value, dict):
        return {key: whole_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
