"""Calculator: arithmetic with + - * / // % **, parentheses, comparisons, and a few functions."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from platform_sdk.records import ToolCall, ToolResult
from platform_sdk.tools.base import value_figure

Number = int | float
MAX_LENGTH = 200
MAX_DIGITS = 300
_NOT_REAL = "the value is no finite real number"
_BINARY: dict[type[ast.AST], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_UNARY: dict[type[ast.AST], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_COMPARE: dict[type[ast.AST], Callable[[Number, Number], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


def _round(number: Number, digits: int = 0) -> Number:
    if abs(digits) > MAX_DIGITS:
        raise OverflowError  # Python would compute 10 ** abs(digits)
    return round(number, digits) if digits else round(number)


def _sqrt(number: Number) -> Number:
    if number < 0:
        raise ArithmeticError(_NOT_REAL)
    return math.sqrt(number)


_FUNCTIONS: dict[str, Callable[..., Number]] = {"abs": abs, "min": min, "max": max, "round": _round, "sqrt": _sqrt}


class CalculatorArguments(BaseModel):
    """Arguments of the calculator."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    expression: str = Field(max_length=MAX_LENGTH)


@dataclass(frozen=True)
class Calculator:
    """Tool that evaluates an arithmetic expression. Nothing but numbers and the operators above is evaluated."""

    name: str = "calculator"
    description: str = "computes an expression such as 1957 - 1923 or max(3, 4) > 2"
    arguments: type[BaseModel] = CalculatorArguments

    def call(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Evaluate each call's expression."""
        return [_result(str(call.arguments["expression"])) for call in calls]


def _result(expression: str) -> ToolResult:
    try:
        value = evaluate(expression)
    except ArithmeticError as error:
        return ToolResult(text=f"Error : {error}", error=True)
    if isinstance(value, bool):
        return ToolResult(text="yes" if value else "no")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    # Ten digits hide rounding errors such as 0.1 + 0.2, but from 10 ** 10 on they would cut whole digits.
    text = str(value) if isinstance(value, int) else f"{value:.10g}" if abs(value) < 1e10 else f"{value:.15g}"
    return ToolResult(text=text, figures=value_figure(value))


def evaluate(expression: str) -> Number | bool:
    """Return the value of an expression.

    Raises:
        ArithmeticError: the expression is malformed, too large, or has no finite real value.
    """
    try:
        value = _value(ast.parse(expression.strip().replace("^", "**"), mode="eval").body)
        finite = not isinstance(value, complex) and math.isfinite(value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ArithmeticError("not an arithmetic expression") from error
    except ZeroDivisionError as error:
        raise ArithmeticError("division by zero") from error
    except OverflowError as error:
        raise ArithmeticError("the value is too large") from error
    if not finite:
        raise ArithmeticError(_NOT_REAL)
    return value


def _value(node: ast.expr) -> Number | bool:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _value(left), _value(right)
            whole = isinstance(op, ast.Pow) and isinstance(a, int) and isinstance(b, int) and abs(a) > 1
            if whole and b * math.log10(abs(a)) > MAX_DIGITS:
                raise OverflowError  # Python would compute all digits
            return _BINARY[type(op)](a, b)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](_value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_value, arguments))
    raise ValueError
