"""A user's own tool in one file: it looks terms up in a JSON file and returns their definitions as evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from platform_sdk.records import Evidence, ToolCall, ToolResult


class Terms(BaseModel, frozen=True, extra="forbid"):
    terms: list[str]
    exact: bool = True


class Glossary:
    """Tool ``glossary`` over the file at ``path``; all calls of a batch are answered in one pass."""

    name = "glossary"
    description = "defines terms"
    arguments = Terms

    def __init__(self, path: str) -> None:
        self._definitions: dict[str, str] = json.loads(Path(path).read_text())

    def call(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        return [self._result(Terms.model_validate(call.arguments)) for call in calls]

    def _result(self, asked: Terms) -> ToolResult:
        wanted = asked.terms if asked.exact else [term.lower() for term in asked.terms]
        known = [term for term in wanted if term in self._definitions]
        evidence = tuple(
            Evidence(kind="passage", id=term, title=term, text=self._definitions[term], score=1.0) for term in known
        )
        return ToolResult(text=f"{len(known)} of {len(wanted)}", evidence=evidence, figures={"known": len(known)})
