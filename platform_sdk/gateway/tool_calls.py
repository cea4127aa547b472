"""Formats in which a policy writes calls of functions: Hermes (Qwen), Llama 3.1, and tags (hopforge's react)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from platform_sdk.gateway.messages import FunctionCall

_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_PYTHON_TAG = "<|python_tag|>"
Parsed = tuple[str, tuple[tuple[str, str], ...]]
"""Text before the calls, and name and arguments of each call."""


class ToolFormat(Protocol):
    """Form of a template's calls. ``tools`` are the definitions of the functions that the program offers."""

    @property
    def name(self) -> str: ...

    def write(self, calls: Sequence[FunctionCall]) -> str:
        """Return calls as chat templates write them."""
        ...

    def parse(self, text: str, tools: Sequence[dict[str, Any]]) -> Parsed | None:
        """Return the calls of a reply; None if it has none or cannot be parsed."""
        ...


@dataclass(frozen=True)
class JsonFormat:
    """Form of a call: a JSON object whose arguments have the name ``field``, between ``opening`` and ``closing``."""

    name: str
    field: str
    opening: str
    closing: str

    def write(self, calls: Sequence[FunctionCall]) -> str:
        return "\n".join(
            f'{self.opening}{{"name": "{call.name}", "{self.field}": {json.dumps(call.values, ensure_ascii=False)}}}'
            f"{self.closing}"
            for call in calls
        )

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> Parsed | None:
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


@dataclass(frozen=True)
class TagFormat:
    """Form of the method react: ``<TOOL>…</TOOL>`` around a JSON object, or around the only argument as plain text."""

    name: str = "tags"

    def write(self, calls: Sequence[FunctionCall]) -> str:
        return "\n".join(f"<{call.name}>{_plain(call.values)}</{call.name}>" for call in calls)

    def parse(self, text: str, tools: Sequence[dict[str, Any]]) -> Parsed | None:
        functions = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
        if not functions:
            return None
        tags = re.compile(rf"<({'|'.join(map(re.escape, functions))})>(.*?)</\1>", re.DOTALL)
        blocks = list(tags.finditer(text))
        if not blocks or tags.sub("", text[blocks[0].start() :]).strip():
            return None
        calls = [(block[1], _arguments(block[2], functions[block[1]])) for block in blocks]
        found = tuple((name, arguments) for name, arguments in calls if arguments is not None)
        return None if len(found) < len(calls) else (text[: blocks[0].start()].removesuffix("\n"), found)


def _plain(values: Any) -> str:
    """Return a call's only argument if it is a text, else all as JSON."""
    only = list(values.values()) if isinstance(values, dict) else [values]
    return only[0] if len(only) == 1 and isinstance(only[0], str) else json.dumps(values, ensure_ascii=False)


def _arguments(content: str, parameters: dict[str, Any]) -> str | None:
    """Return the arguments in a tag as JSON text; None if plain text cannot be an argument of this function."""
    try:
        if isinstance(json.loads(content), dict):
            return content
    except (ValueError, RecursionError):
        pass
    fields = parameters.get("properties")
    if not content.strip() or not isinstance(fields, dict):
        return None
    match parameters.get("required") or list(fields):
        case [str(name)] if isinstance(fields.get(name), dict) and fields[name].get("type") == "string":
            return json.dumps({name: content}, ensure_ascii=False)
    return None


HERMES = JsonFormat("hermes", "arguments", "<tool_call>\n", "\n</tool_call>")
LLAMA = JsonFormat("llama3", "parameters", "", "")
TAGS = TagFormat()
FORMATS: tuple[ToolFormat, ...] = (HERMES, LLAMA, TAGS)
