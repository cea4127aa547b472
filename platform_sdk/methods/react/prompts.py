"""Prompts of the agent. All wording is the project's own.

``standard`` is for instruction-tuned models and describes every tool, ``compact`` for small models that cannot afford
long instructions. The worked example, about made-up companies, is shown as turns that have already taken place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from platform_sdk.methods.react.grammar import RESULT, form
from platform_sdk.records import ToolResult
from platform_sdk.tools.base import Tool

Style = Literal["standard", "compact"]

_STANDARD = """\
You answer a question step by step with the tools below.
Every turn starts with your thoughts in <think>…</think>: what is known so far, and what is still missing.
If something is missing, call one tool after your thoughts. Its result comes back in <result>…</result>.
If you know enough, write <answer>…</answer> instead: only the short answer (a name, a date, a number, yes or no), no \
sentence.
Write nothing outside the tags, and one call or one answer per turn. You have at most {turns} turns.
Tools:
{tools}"""
_COMPACT = "Think , then use a tool or write the answer ."


def instruction(style: Style, turns: int, tools: Iterable[Tool]) -> str:
    """Return the system message."""
    if style == "compact":
        return _COMPACT
    described = "\n".join(f"- {form(tool)}: {tool.description}" for tool in tools)
    return _STANDARD.format(turns=turns, tools=described)


def opening(question: str) -> str:
    """Return the first message."""
    return f"Question : {question}"


def result(given: ToolResult) -> str:
    """Return the message that shows a tool's result: its text, then its evidence, a line each."""
    lines = [given.text] if given.text else []
    lines += [f"{item.title} : {item.text}" if item.title else item.text for item in given.evidence]
    return "\n".join((f"<{RESULT}>", *(lines or ["( nothing found )"]), f"</{RESULT}>"))


def error(reason: str) -> str:
    """Return the message that answers a malformed turn."""
    return f"Error : {reason} ."
