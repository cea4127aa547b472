"""Interface of a tool. See docs/tools.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pydantic import BaseModel

from platform_sdk.records import ToolCall, ToolResult
from platform_sdk.sampling.rollout import Call, ToolFault

__all__ = ["Tool", "ToolCall", "ToolFault", "ToolResult", "call_tool", "plain_argument"]


class Tool(Protocol):
    """Tool that an agent calls by name.

    A call that the tool cannot answer gets a result with ``error``, which the agent reads.
    A tool that is unavailable raises ``ToolFault``: the rollout starts again.
    """

    @property
    def name(self) -> str:
        """Name that agents and records use: a letter, then letters, digits, ``_`` or ``-``."""

    @property
    def description(self) -> str:
        """One sentence for the agent's instruction."""

    @property
    def arguments(self) -> type[BaseModel]:
        """Model of the arguments of a call."""

    def call(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Answer calls of several rollouts in one batch, in order.

        Raises:
            ToolFault: the tool is unavailable.
        """


def call_tool(tool: Tool, *calls: ToolCall) -> Call:
    """Return an agent's request to call a tool; the answer is a list of ``ToolResult``, one for each call."""
    return Call(tool.call, calls, concurrent=True)


def plain_argument(arguments: type[BaseModel]) -> str | None:
    """Return the name of the only required argument if it is a text, so that a call can be written as plain text."""
    required = [name for name, field in arguments.model_fields.items() if field.is_required()]
    return required[0] if len(required) == 1 and arguments.model_fields[required[0]].annotation is str else None
