"""Inputs and outputs of a step, read from its module without importing it.

A component of a pipeline names a step: a shipped one (``sample`` is ``platform_sdk/steps/sample.py``), or any module on
the Python path by its dotted name. The module defines the models ``Inputs`` and ``Outputs`` and a function ``run``
(``platform_sdk/steps/base.py``). Reading the syntax tree runs no line of it, so ``hopforge validate`` stays quick.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from platform_sdk.config.code import find_definition, parse_module, source_file
from platform_sdk.config.errors import UserError

STEPS = "platform_sdk.steps"
# Annotations of fields, and the types of pipeline parameters.
PARAMETER_TYPES = {
    "str": "string",
    "Path": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "struct",
    "list": "list",
}


@dataclass(frozen=True)
class Port:
    """An input or output: its type (``string``, ``struct``, …), and for an input whether it must be given."""

    type: str
    required: bool = True


@dataclass(frozen=True)
class Interface:
    """Interface of a component: its name in pipelines, its inputs and outputs, and artifacts besides its card."""

    component: str
    inputs: dict[str, Port]
    outputs: dict[str, Port]
    shows: tuple[str, ...] = ()


def step_module(component: str) -> str:
    """Return the dotted name of a component's module."""
    return component if "." in component else f"{STEPS}.{component}"


def component_names() -> list[str]:
    """Return the names of the shipped components."""
    folder = Path(__file__).parents[1] / "steps"
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "base"))


@cache
def read_interface(component: str) -> Interface:
    """Read the interface of a component.

    Raises:
        UserError: there is no such module, it lacks ``Inputs``, ``Outputs`` or ``run``, or a field has a type that a
            pipeline cannot hand over.
    """
    module = step_module(component)
    if "." not in component and component not in component_names():
        raise UserError(f"there is no component {component}")
    _definition(component, f"{module}:run")
    try:
        inputs, outputs = (_fields(component, f"{module}:{name}") for name in ("Inputs", "Outputs"))
    except RecursionError as error:
        raise UserError(f"component {component}: a model of {module} is its own base class; rename one") from error
    return Interface(component, inputs, outputs, _shows(component, module))


def _shows(component: str, module: str) -> tuple[str, ...]:
    """Return the value of a module's ``SHOWS``; empty by default."""
    try:
        node = find_definition(f"{module}:SHOWS")
    except ValueError:
        return ()
    try:
        return tuple(ast.literal_eval(node.value))  # type: ignore[union-attr, arg-type]
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f'component {component}: SHOWS must be a tuple of texts, e.g. ("metrics",)') from error


def _fields(component: str, name: str) -> dict[str, Port]:
    """Return the fields of a model, base classes first."""
    node = _definition(component, name)
    if not isinstance(node, ast.ClassDef):
        raise UserError(f"component {component}: {name} must be a class")
    module = name.partition(":")[0]
    fields: dict[str, Port] = {}
    for base in node.bases:
        if (found := _base(component, module, base)) is not None:
            fields |= _fields(component, found)
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            type_ = _last(item.annotation)
            if type_ not in PARAMETER_TYPES:
                raise UserError(
                    f"component {component}: {module}:{item.lineno}: {item.target.id} must be annotated with one of "
                    f"{', '.join(PARAMETER_TYPES)}, but is {ast.unparse(item.annotation)}"
                )
            fields[item.target.id] = Port(PARAMETER_TYPES[type_], required=_is_required(item.value))
    return fields


def _is_required(value: ast.expr | None) -> bool:
    """Return True if a field has no default: no value, or a ``Field`` without a default or with ``...``."""
    if isinstance(value, ast.Call) and _last(value.func) == "Field":
        named = {keyword.arg for keyword in value.keywords}
        if named & {"default", "default_factory"}:
            return False
        return not value.args or (isinstance(value.args[0], ast.Constant) and value.args[0].value is ...)
    return value is None


def _base(component: str, module: str, base: ast.expr) -> str | None:
    """Return ``module:name`` of a base class with fields; None for pydantic's and hopforge's empty ones."""
    name = _last(base)
    if name in ("BaseModel", "Struct"):
        return None
    tree = parse_module(module)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
            return f"{_imported_module(module, node)}:{original}"
    return f"{module}:{name}"


def _imported_module(module: str, node: ast.ImportFrom) -> str:
    """Return the module that an import in ``module`` names; a relative one begins at the package of ``module``."""
    if not node.level:
        return str(node.module)
    path = source_file(module)
    outside = node.level - (path is not None and path.name == "__init__.py")
    package = module.split(".")[: -outside or None]
    return ".".join([*package, *filter(None, [node.module])])


def _definition(component: str, name: str) -> ast.AST:
    try:
        return find_definition(name)
    except ValueError as error:
        raise UserError(f"component {component}: {error}") from error


def _last(node: ast.expr) -> str:
    """``Dataset`` of ``Dataset`` or ``dsl.Dataset``; the part before ``[`` of ``dict[str, int]``."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
            return name
        case ast.Subscript(value=value):
            return _last(value)
    return ast.unparse(node)
