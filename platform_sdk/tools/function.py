"""A Python function as a tool."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from platform_sdk.config.code import import_definition
from platform_sdk.config.tools import FunctionToolSpec
from platform_sdk.errors import UserError
from platform_sdk.records import ToolCall, ToolResult
from platform_sdk.tools.base import ToolFault


@dataclass(frozen=True)
class FunctionTool:
    """Tool that calls a function of the user's once for each call."""

    name: str
    description: str
    arguments: type[BaseModel]
    function: Callable[..., Any]

    def call(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Call the function; the message of an exception that it raises is the agent's result."""
        return [self._result(call) for call in calls]

    def _result(self, call: ToolCall) -> ToolResult:
        given = self.arguments.model_validate(call.arguments)
        try:
            value = self.function(**{name: getattr(given, name) for name in given.model_fields_set})
        except ToolFault:
            raise
        except Exception as error:  # foreign code, which may raise anything
            return ToolResult(text=f"Error : {type(error).__name__} : {error}", error=True)
        if isinstance(value, ToolResult):
            return value
        figures = {"value": float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else {}
        return ToolResult(text="" if value is None else str(value), figures=figures)


def open_function(spec: FunctionToolSpec) -> FunctionTool:
    """Import the function and make its arguments' model from its annotations.

    Raises:
        UserError: the module cannot be imported, or a parameter cannot be an argument.
    """
    function = import_definition(spec.function)
    fields: dict[str, Any] = {}
    try:
        hints = get_type_hints(function)
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) or name not in hints:
                raise TypeError(f"parameter {name} has no annotation or cannot be given by name")
            fields[name] = (hints[name], ... if parameter.default is parameter.empty else parameter.default)
        arguments = create_model(function.__name__, __config__=ConfigDict(extra="forbid", frozen=True), **fields)
    except (NameError, TypeError, ValidationError) as error:
        raise UserError(f"tool {spec.function}: {error}; annotate its parameters with types of JSON") from error
    described = (inspect.getdoc(function) or "").partition("\n")[0]
    return FunctionTool(spec.name or function.__name__, spec.description or described, arguments, function)
