"""Prompts of the agent. All wording is the project's own.

``standard`` is for instruction-tuned models and describes every tool, ``compact`` for small models that cannot afford
long instructions. The worked example, about made-up companies, is shown as turns that have already taken place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from platform_sdk.methods.react.grammar import INFORMATION, RESULT, form
from platform_sdk.records import ToolResult
from platform_sdk.tools.base import Tool

Style = Literal["standard", "compact", "search_r1"]

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
_SEARCH_R1 = """\
Answer the question. Each time new information arrives, first reason about it between <think> and </think>.
If your reasoning shows that knowledge is missing, call the search engine with <search>query</search>. The best \
passages come back between <information> and </information>. You may search up to {turns} times.
As soon as nothing is missing, give the answer between <answer> and </answer> without an explanation, for example \
<answer>Velm</answer>."""


def instruction(style: Style, turns: int, tools: Iterable[Tool]) -> str:
    """Return the system message."""
    if style != "standard":
        return _COMPACT if style == "compact" else _SEARCH_R1.format(turns=turns - 1)
    described = "\n".join(f"- {form(tool)}: {tool.description}" for tool in tools)
    return _STANDARD.format(turns=turns, tools=described)


def opening(question: str) -> str:
    """Return the first message."""
    return f"Question : {question}"


def result(style: Style, given: ToolResult) -> str:
    """Return the message that shows a tool's result: its text, then its evidence, a line each."""
    lines = [given.text] if given.text else []
    if style == "search_r1":
        lines += [f"Doc {n} (Title: {item.title}) {item.text}" for n, item in enumerate(given.evidence, start=1)]
    else:
        lines += [f"{item.title} : {item.text}" if item.title else item.text for item in given.evidence]
    tag = INFORMATION if style == "search_r1" else RESULT
    return "\n".join((f"<{tag}>", *(lines or ["( nothing found )"]), f"</{tag}>"))


def error(style: Style, reason: str) -> str:
    """Return the message that answers a malformed turn."""
    if style == "search_r1":
        return (
            "That was no action. To search, write the query between <search> and </search>. To answer, write the "
            "answer between <answer> and </answer>. Try again."
        )
    return f"Error : {reason} ."
