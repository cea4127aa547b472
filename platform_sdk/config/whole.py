"""Whole numbers as integers, however a file or a server wrote them."""

from __future__ import annotations

from typing import Any

from platform_sdk.config.bounded_yaml import MAX_INTEGER, MIN_INTEGER


def whole_numbers(value: Any) -> Any:
    """Return plain data with whole floats of 64 bits as integers, since YAML and JSON do not distinguish them."""
    if isinstance(value, dict):
        return {key: whole_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole_numbers(inner) for inner in value]
    whole = isinstance(value, float) and MIN_INTEGER <= value <= MAX_INTEGER and value.is_integer()
    return int(value) if whole else value
