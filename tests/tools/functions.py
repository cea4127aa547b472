"""Functions that tests use as tools."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from pydantic import BaseModel

from platform_sdk.records import ToolCall, ToolResult
from platform_sdk.sampling.rollout import ToolFault


def days_between(first: str, second: str, absolute: bool = True) -> int:
    """Count the days between two ISO dates.

    More text that the agent does not see.
    """
    from datetime import date

    days = (date.fromisoformat(second) - date.fromisoformat(first)).days
    return abs(days) if absolute else days


def whole(word: str) -> ToolResult:
    """Return a whole result; one without letters has no figure that a file can hold."""
    return ToolResult(text=word, figures={"letters": len(word) or math.nan})


def unavailable(word: str) -> str:
    """Be unavailable."""
    raise ToolFault("the database is locked")


def untyped(word):  # type: ignore[no-untyped-def]
    """Lack an annotation."""


def evaluated(copy: str) -> object:
    """Evaluate the test's expression."""
    return eval(copy)


def unknown_type(word: json.Nothing) -> str:  # type: ignore[name-defined]
    return str(word)


class Odd:
    pass


class Search:
    """A tool with the name of the corpus search."""

    name, description, arguments = "search", "finds", BaseModel

    def call(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        return [ToolResult() for _ in calls]


def no_json_type(word: Odd) -> str:
    return str(word)
