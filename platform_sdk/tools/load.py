"""Opening of the tools that a recipe names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from platform_sdk.config.code import import_definition
from platform_sdk.config.tools import (
    RESERVED,
    CalculatorSpec,
    CustomToolSpec,
    FunctionToolSpec,
    HttpToolSpec,
    SearchToolSpec,
    ToolSpec,
)
from platform_sdk.errors import UserError
from platform_sdk.records import SEARCH
from platform_sdk.sampling.rollout import SearchFunction
from platform_sdk.tools.base import Tool
from platform_sdk.tools.calculator import Calculator
from platform_sdk.tools.function import open_function
from platform_sdk.tools.http import open_http
from platform_sdk.tools.mcp import open_mcp
from platform_sdk.tools.search import SearchTool


@contextmanager
def open_tools(specs: Sequence[ToolSpec], search: SearchFunction) -> Iterator[dict[str, Tool]]:
    """Open tools, and close them at the end; by name, in the recipe's order.

    Raises:
        UserError: a tool cannot be opened, or its name is taken.
    """
    with ExitStack() as stack:
        tools: dict[str, Tool] = {}
        for spec in specs:
            for tool in _opened(spec, search, stack):
                if tool.name in tools or tool.name in RESERVED:
                    raise UserError(f"tools: the name {tool.name} occurs twice or is a tag of the turns; rename a tool")
                if tool.name == SEARCH and not isinstance(spec, SearchToolSpec):
                    raise UserError(
                        "tools: the name search is reserved for the search of the corpus; rename the other tool "
                        "search or leave it out"
                    )
                tools[tool.name] = tool
        yield tools


def _opened(spec: ToolSpec, search: SearchFunction, stack: ExitStack) -> Sequence[Tool]:
    if isinstance(spec, SearchToolSpec):
        return [SearchTool(search, spec.top_k)]
    if isinstance(spec, CalculatorSpec):
        return [Calculator()]
    if isinstance(spec, FunctionToolSpec):
        return [open_function(spec)]
    if isinstance(spec, HttpToolSpec):
        tool = open_http(spec)
        stack.callback(tool.client.close)
        return [tool]
    if isinstance(spec, CustomToolSpec):
        return [_custom(spec)]
    return stack.enter_context(open_mcp(spec))


def _custom(spec: CustomToolSpec) -> Tool:
    try:
        tool = import_definition(spec.tool)(**spec.settings)
    except UserError:
        raise
    except Exception as error:  # foreign code, which may raise anything
        raise UserError(f"tool {spec.tool}: {type(error).__name__}: {error}; check its settings") from error
    if missing := [name for name in ("name", "description", "arguments", "call") if not hasattr(tool, name)]:
        raise UserError(f"tool {spec.tool}: has no {missing[0]}; see platform_sdk.tools.base.Tool")
    opened: Tool = tool
    return opened
