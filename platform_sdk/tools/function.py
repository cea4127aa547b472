"""A Python function as a tool."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from platform_sdk.config.code import import_definition
from platform_sdk.config.tools import FunctionToolSpec
from platform_sdk.display import encodable
from platform_sdk.errors import UserError
from platform_sdk.records import ToolCall, ToolResult
from platform_sdk.tools.base import ToolFault, arguments_model, value_figure


@dataclass(frozen=True)
class FunctionTool:
    """Tool that calls a function of the user's once for each call."""

    name: str
    description: str
    arguments: type[BaseModel]
    function: Callable[..., Any]

    def call(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Call the function; if it raises an exception, the agent gets the message."""
        return [self._result(call) for call in calls]

    def _result(self, call: ToolCall) -> ToolResult:
        parsed = self.arguments.model_validate(call.arguments)
        fields = self.arguments.model_fields
        given = {str(fields[name].alias): getattr(parsed, name) for name in parsed.model_fields_set}
        try:
            value = self.function(**given)
            if isinstance(value, ToolResult):
                return value.model_copy(update={"text": encodable(value.text)})
            text = "" if value is None else str(value)
            figures = value_figure(value) if isinstance(value, int | float) and not isinstance(value, bool) else {}
        except ToolFault:
            raise
        except Exception as error:  # foreign code, which may raise anything
            return ToolResult(text=encodable(f"Error : {type(error).__name__} : {error}"), error=True)
        return ToolResult(text=encodable(text), figures=figures)


def open_function(spec: FunctionToolSpec) -> FunctionTool:
    """Import the function and make its arguments' model from its annotations.

    Raises:
        UserError: the module cannot be imported, or a parameter cannot be an argument.
    """
    function = import_definition(spec.function)
    fields: list[tuple[str, Any, Any, None]] = []
    try:
        hints = get_type_hints(function)
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) or name not in hints:
                raise TypeError(f"parameter {name} has no annotation or cannot be given by name")
            fields.append((name, hints[name], ... if parameter.default is parameter.empty else parameter.default, None))
        arguments = arguments_model(function.__name__, fields)
    except (AttributeError, NameError, TypeError, ValueError, PydanticUserError) as error:
        cause = str(error).partition("\n")[0]
        raise UserError(f"tool {spec.function}: {cause}; annotate its parameters with types of JSON") from error
    described = (inspect.getdoc(function) or "").partition("\n")[0]
    return FunctionTool(spec.name or function.__name__, spec.description or described, arguments, function)
