"""Formats in which a policy writes calls of functions: Hermes (Qwen, SmolLM) and Llama 3."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from platform_sdk.gateway.messages import FunctionCall

_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_PYTHON_TAG = "<|python_tag|>"
Parsed = tuple[str, tuple[tuple[str, str], ...]]
"""Text before the calls, and name and arguments of each call."""


@dataclass(frozen=True)
class ToolFormat:
    """Form of a call: a JSON object whose arguments have the name ``field``, between ``opening`` and ``closing``."""

    name: str
    field: str
    opening: str
    closing: str

    def write(self, calls: Sequence[FunctionCall]) -> str:
        """Return calls as chat templates write them."""
        return "\n".join(
            f'{self.opening}{{"name": "{call.name}", "{self.field}": {json.dumps(call.values, ensure_ascii=False)}}}'
            f"{self.closing}"
            for call in calls
        )

    def parse(self, text: str) -> Parsed | None:
        """Return the calls of a reply; None if it has none or cannot be parsed."""
        if self.opening:
            return self._blocks(text)
        call = self._call(text.strip().removeprefix(_PYTHON_TAG).strip())
        return None if call is None else ("", (call,))

    def _blocks(self, text: str) -> Parsed | None:
        blocks = list(_BLOCK.finditer(text))
        if not blocks or _BLOCK.sub("", text[blocks[0].start() :]).strip():
            return None
        calls = [self._call(block[1].strip()) for block in blocks]
        if any(call is None for call in calls):
            return None
        return text[: blocks[0].start()].removesuffix("\n"), tuple(call for call in calls if call is not None)

    def _call(self, text: str) -> tuple[str, str] | None:
        try:
            call = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return None
        values = call.get(self.field)
        return (call["name"], _written(text, self.field, values)) if isinstance(values, dict) else None


def _written(text: str, field: str, values: dict[str, Any]) -> str:
    """Return the arguments' own text, which keeps the layout that the model chose."""
    for match in re.finditer(rf'"{field}"\s*:\s*', text):
        try:
            found, end = json.JSONDecoder().raw_decode(text, match.end())
        except ValueError:
            continue
        if found == values:
            return text[match.end() : end]
    return json.dumps(values, ensure_ascii=False)


HERMES = ToolFormat("hermes", "arguments", "<tool_call>\n", "\n</tool_call>")
LLAMA = ToolFormat("llama3", "parameters", "", "")
FORMATS = (HERMES, LLAMA)
