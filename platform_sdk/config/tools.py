"""Settings of the tools that an agent may call."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from platform_sdk.config.code import find_definition, find_function
from platform_sdk.config.struct import Struct
from platform_sdk.config.urls import ToolUrl

ToolName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
RESERVED = frozenset({"think", "answer", "result"})
"""Tags of a turn, which no tool may be named after."""


class SearchToolSpec(Struct):
    """Search of the run's corpus by the recipe's retrieval method."""

    type: Literal["search"] = Field(description="search of the corpus")
    top_k: int = Field(3, ge=1, le=10_000, description="passages per result")


class CalculatorSpec(Struct):
    """Arithmetic: numbers, + - * / // % **, comparisons, abs, min, max, round, sqrt."""

    type: Literal["calculator"] = Field(description="the calculator")


class FunctionToolSpec(Struct):
    """A Python function with annotated parameters that returns a text, a number or a ``ToolResult``."""

    type: Literal["function"] = Field(description="a Python function")
    function: str = Field(description="the function, as package.module:function; it must be deterministic")
    name: ToolName | None = Field(None, description="the tool's name; default: the function's name")
    description: str | None = Field(
        None, description="description for the agent; default: the first line of the docstring"
    )

    @field_validator("function")
    @classmethod
    def _is_function(cls, value: str) -> str:
        find_function(value)
        return value


class ArgumentSpec(Struct):
    """An argument of an HTTP tool."""

    type: Literal["string", "integer", "number", "boolean"] = Field("string", description="its JSON type")
    description: str = Field("", description="description for the agent")
    required: bool = Field(True, description="false: the agent may leave it out")


class HttpToolSpec(Struct):
    """An HTTP endpoint: arguments go into the query (GET) or a JSON object (POST), the response's text comes back."""

    type: Literal["http"] = Field(description="an HTTP endpoint")
    name: ToolName = Field(description="the tool's name")
    description: str = Field(min_length=1, description="description for the agent")
    url: ToolUrl = Field(description="the endpoint")
    method: Literal["GET", "POST"] = Field("GET", description="the HTTP method")
    arguments: dict[ToolName, ArgumentSpec] = Field(default_factory=dict, description="its arguments, by name")
    token_env: str | None = Field(None, min_length=1, description="environment variable with a bearer token")
    timeout: float = Field(30.0, gt=0, le=3600, description="timeout of a request, in seconds")
    retries: int = Field(3, ge=0, le=100, description="retries after a lost connection, HTTP 429 or 5xx")
    concurrency: int = Field(8, ge=1, le=1024, description="concurrent requests")
    max_characters: int = Field(
        2000, ge=1, le=1_000_000, description="maximum characters of a response; longer ones are cut"
    )


class McpToolSpec(Struct):
    """The tools of a Model Context Protocol server: a program (``command``) or an address (``url``)."""

    type: Literal["mcp"] = Field(description="a Model Context Protocol server")
    command: tuple[str, ...] | None = Field(None, min_length=1, description="command line of the server")
    url: ToolUrl | None = Field(None, description="URL of the server (streamable HTTP)")
    tools: tuple[str, ...] | None = Field(None, min_length=1, description="names of the tools to use; null: all")
    token_env: str | None = Field(None, min_length=1, description="environment variable with a bearer token")
    timeout: float = Field(30.0, gt=0, le=3600, description="timeout of a call, in seconds")
    max_characters: int = Field(
        2000, ge=1, le=1_000_000, description="maximum characters of a result; longer ones are cut"
    )

    @model_validator(mode="after")
    def _names_one_server(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has either a command or a url; set one of them")
        if self.command is not None and self.token_env is not None:
            raise ValueError("token_env is for a url; a command gets no token")
        return self


class CustomToolSpec(Struct):
    """The user's own tool: a class, or a function that returns the tool, called with the settings."""

    type: Literal["custom"] = Field(description="your own class")
    tool: str = Field(description="the class or function, as package.module:name")
    settings: dict[str, JsonValue] = Field(default_factory=dict, description="its keyword arguments")

    @field_validator("tool")
    @classmethod
    def _is_callable(cls, value: str) -> str:
        if ":" not in value:
            raise ValueError(f"{value} names no class; write package.module:name")
        if not isinstance(find_definition(value), ast.ClassDef | ast.FunctionDef):
            raise ValueError(f"{value} is neither a class nor a function")
        return value


ToolSpec = Annotated[
    SearchToolSpec | CalculatorSpec | FunctionToolSpec | HttpToolSpec | McpToolSpec | CustomToolSpec,
    Field(discriminator="type"),
]


def tool_name(spec: ToolSpec) -> str | None:
    """Return the name of a tool; None where it is known only once the tool is open."""
    if isinstance(spec, McpToolSpec | CustomToolSpec):
        return None
    if isinstance(spec, FunctionToolSpec):
        return spec.name or spec.function.partition(":")[2]
    return spec.name if isinstance(spec, HttpToolSpec) else spec.type


def check_names(specs: Sequence[ToolSpec]) -> None:
    """Check that the tools have different names that are no tags of a turn, and that only the search is named search.

    Raises:
        ValueError: a name occurs twice or is reserved.
    """
    # Agents, records and reports recognise the search of the corpus by its name.
    if any(tool_name(spec) == "search" and not isinstance(spec, SearchToolSpec) for spec in specs):
        raise ValueError("the name search is reserved for the search of the corpus; set another name")
    names = [name for name in map(tool_name, specs) if name is not None]
    for name in names:
        if name in RESERVED:
            raise ValueError(f"a tool must not be named {name}, which is a tag of the turns; set another name")
        if names.count(name) > 1:
            raise ValueError(f"two tools are named {name}; set another name")
