"""Inputs and outputs of a component, read from its ``component.py`` without running it.

A component is a function with the decorator ``@dsl.component``; its signature is its interface. Reading
the syntax tree instead of importing keeps kfp out of ``hopforge validate``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from platform_sdk.config.errors import UserError

# Annotations of parameters, and what KFP calls them; every other type is an artifact's.
PARAMETER_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "struct",
    "list": "list",
}


@dataclass(frozen=True)
class Port:
    """An input or output: a parameter (``string``, ``struct``, …) or an artifact (``Dataset``, ``Model``, …)."""

    type: str
    required: bool = True

    @property
    def artifact(self) -> bool:
        return self.type not in PARAMETER_TYPES.values()


@dataclass(frozen=True)
class Interface:
    """The interface of one component; ``function`` is its name in ``path``."""

    path: Path
    function: str
    inputs: dict[str, Port]
    outputs: dict[str, Port]


@cache
def read_interface(path: Path) -> Interface:
    """Read the interface of the component in ``path``.

    Raises:
        UserError: there is no such file, it does not hold exactly one component, or an annotation is not
            one that a component may have.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such component") from error
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: is not valid Python: {error.msg}") from error
    functions = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and any(map(_is_component, node.decorator_list))
    ]
    if len(functions) != 1:
        raise UserError(f"{path}: must hold exactly one function with @dsl.component, but holds {len(functions)}")
    function = functions[0]
    inputs: dict[str, Port] = {}
    outputs: dict[str, Port] = {}
    arguments = [*function.args.args, *function.args.kwonlyargs]
    defaults: list[ast.expr | None] = [None] * (len(function.args.args) - len(function.args.defaults))
    defaults += [*function.args.defaults, *function.args.kw_defaults]
    for argument, default in zip(arguments, defaults, strict=True):
        direction, type_ = _annotation(path, argument)
        (outputs if direction == "Output" else inputs)[argument.arg] = Port(type_, required=default is None)
    outputs |= _returned(path, function)
    return Interface(path, function.name, inputs, outputs)


def _is_component(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(target) in ("dsl.component", "component", "kfp.dsl.component")


def _annotation(path: Path, argument: ast.arg) -> tuple[str, str]:
    """``("Input" | "Output" | "", type)`` of an argument."""
    node = argument.annotation
    if isinstance(node, ast.Subscript) and _last(node.value) in ("Input", "Output"):
        return _last(node.value), _last(node.slice)
    name = _last(node) if node else ""
    if name not in PARAMETER_TYPES:
        raise UserError(
            f"{path}:{argument.lineno}: {argument.arg}: must be annotated with one of {', '.join(PARAMETER_TYPES)}, "
            "Input[ARTIFACT] or Output[ARTIFACT]"
        )
    return "", PARAMETER_TYPES[name]


def _returned(path: Path, function: ast.FunctionDef) -> dict[str, Port]:
    """The parameters a component returns: ``NamedTuple("Outputs", [("name", str), …])``, one unnamed, or none."""
    node = function.returns
    match node:
        case None | ast.Constant(value=None):
            return {}
        case ast.Call(func=func, args=[_, ast.List(elts=fields)]) if _last(func) == "NamedTuple":
            pairs = [(field.elts[0], field.elts[1]) for field in fields if isinstance(field, ast.Tuple)]
        case ast.Name():
            pairs = [(ast.Constant("Output"), node)]
        case _:
            pairs = []
    ports = {
        name.value: Port(PARAMETER_TYPES[_last(type_)])
        for name, type_ in pairs
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and _last(type_) in PARAMETER_TYPES
    }
    if not ports or len(ports) != len(pairs):
        raise UserError(
            f'{path}:{function.lineno}: the return annotation must be NamedTuple("Outputs", [("name", str), …]) '
            f"of {', '.join(PARAMETER_TYPES)}"
        )
    return ports


def _last(node: ast.expr) -> str:
    """``Dataset`` of ``Dataset``, ``dsl.Dataset`` or ``"Dataset"``; the part before ``[`` of ``dict[str, int]``."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
            return name
        case ast.Subscript(value=value):
            return _last(value)
    return ast.unparse(node)
