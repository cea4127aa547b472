"""Interface of a tool. See docs/tools.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, create_model

from platform_sdk.records import ToolCall, ToolResult
from platform_sdk.sampling.rollout import Call, ToolFault

__all__ = [
    "Tool", "ToolCall", "ToolFault", "ToolResult", "arguments_model", "call_tool", "plain_argument", "value_figure",
]  # fmt: skip


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
    required = [(field.alias or name, field) for name, field in arguments.model_fields.items() if field.is_required()]
    return required[0][0] if len(required) == 1 and required[0][1].annotation is str else None


def arguments_model(tool: str, arguments: Iterable[tuple[str, Any, Any, str | None]]) -> type[BaseModel]:
    """Return the model of a tool's arguments, each a name, a type, a default (``...``: required) and a description.

    The names are aliases of the model's fields, since pydantic reserves names such as ``copy`` and ``model_dump``.
    """
    fields: dict[str, Any] = {
        f"argument_{place}": (kind, Field(default, alias=name, description=description))
        for place, (name, kind, default, description) in enumerate(arguments)
    }
    return create_model(tool, __config__=ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True), **fields)


def value_figure(value: float) -> dict[str, float]:
    """Return the figure ``value`` of a result that is a number; none if a record cannot hold it."""
    return {"value": float(value)} if abs(value) < 1e300 else {}
