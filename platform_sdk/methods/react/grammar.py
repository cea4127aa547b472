"""Grammar of a turn: ``<think>…</think>``, then one call ``<TOOL>…</TOOL>`` or one ``<answer>…</answer>``.

A tool whose only required argument is a text takes it as plain text (``<search>Who wrote it?</search>``), any other
tool a JSON object of its arguments. Anything else is malformed, and the agent gets the reason.

Search-R1 (Jin et al., 2025, arXiv 2503.09516) reads a turn more loosely: its action is the first ``<search>…</search>``
or ``<answer>…</answer>``, wherever it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from platform_sdk.agents.planner_worker import Answer, Malformed
from platform_sdk.agents.sections import sections
from platform_sdk.records import SEARCH, ToolCall, is_recordable
from platform_sdk.tools.base import Tool, plain_argument

ANSWER, RESULT, INFORMATION = "answer", "result", "information"
STOPS = (f"</{SEARCH}>", f"</{ANSWER}>")
"""Strings that end a turn of Search-R1."""


def parse(text: str, tools: Mapping[str, Tool]) -> ToolCall | Answer | Malformed:
    """Parse a turn, decoded from the sampled tokens without end-of-turn tokens."""
    tags = re.compile("|".join(f"</?{name}>" for name in ("think", ANSWER, RESULT, *map(re.escape, tools))))
    thought, closing, action = text.strip().partition("</think>")
    if not thought.startswith("<think>") or not closing:
        return Malformed("begin with <think>…</think>")
    if tags.search(thought, len("<think>")):
        return Malformed("another tag is inside <think>")
    action = action.strip()
    name = next((name for name in (ANSWER, *tools) if action.startswith(f"<{name}>")), None)
    found = sections(action, name, tags) if name is not None else None
    if name is None or not found:
        forms = " or ".join(f"<{name}>…</{name}>" for name in (*tools, ANSWER))
        return Malformed(f"after </think> write one {forms} , and nothing else")
    if len(found) > 1:
        return Malformed(f"write only one <{name}>…</{name}>")
    if not found[0]:
        return Malformed(f"the {name} is empty")
    return Answer(found[0]) if name == ANSWER else _call(tools[name], found[0])


def parse_search_r1(text: str, tools: Mapping[str, Tool]) -> ToolCall | Answer | Malformed:
    """Parse a turn of Search-R1."""
    actions: list[tuple[int, str, str]] = []
    for name in (SEARCH, ANSWER):  # by position: a pattern would take quadratic time
        before, _, rest = text.partition(f"<{name}>")
        content, closing, _ = rest.partition(f"</{name}>")
        if closing:
            actions.append((len(before), name, content.strip()))
    if not actions:
        return Malformed("no search and no answer")
    _, name, content = min(actions)
    if not content:
        return Malformed(f"the {name} is empty")
    return Answer(content) if name == ANSWER else _call(tools[SEARCH], content)


def _call(tool: Tool, content: str) -> ToolCall | Malformed:
    plain = plain_argument(tool.arguments)
    try:
        given: BaseModel = (
            tool.arguments.model_validate({plain: content})
            if plain is not None
            else tool.arguments.model_validate_json(content)
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return Malformed(f"{tool.name} : {where} : {first['msg']}" if where else f"{tool.name} : {first['msg']}")
    arguments = given.model_dump(mode="json")
    if not is_recordable(arguments):
        return Malformed(f"{tool.name} : a number is not finite, or the arguments are nested too deeply")
    return ToolCall(tool=tool.name, arguments=arguments)


def form(tool: Tool) -> str:
    """Return how a call of the tool is written, for the instruction."""
    plain = plain_argument(tool.arguments)
    if plain is not None:
        return f"<{tool.name}>{plain}</{tool.name}>"
    fields = tool.arguments.model_json_schema().get("properties", {})
    example = json.dumps({name: field.get("type", "value") for name, field in fields.items()})
    return f"<{tool.name}>{example}</{tool.name}>"
