"""Differences between two resolved recipes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

ABSENT = "(absent)"


class Change(NamedTuple):
    """A leaf by its dotted name, with its value in the one recipe and in the other."""

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.name}: {json.dumps(self.old, ensure_ascii=False)} → {json.dumps(self.new, ensure_ascii=False)}"


def differences(old: Any, new: Any, name: str = "") -> Iterator[Change]:
    """Yield every leaf that differs, in the order of the names."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            inner = f"{name}.{key}" if name else key
            yield from differences(old.get(key, ABSENT), new.get(key, ABSENT), inner)
    elif old != new:
        yield Change(name, old, new)
