"""The plan in a planner's first thoughts."""

from __future__ import annotations

import re

_PLANNED = re.compile(r"^[^\S\n]*+\d+[.)]\s*+(\S.*)$", re.MULTILINE)


def without_plan(thoughts: str) -> tuple[tuple[str, ...], str]:
    """Return the numbered lines of the first thoughts, and the thoughts after them."""
    lines = list(_PLANNED.finditer(thoughts))
    if not lines:
        return (), thoughts
    return tuple(line[1].rstrip() for line in lines), thoughts[lines[-1].end() :].strip()
