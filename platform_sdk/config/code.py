"""Functions, classes and values that a recipe or pipeline names as ``module:name``, found without importing anything.

A module's source is found on the Python path and parsed. Naming a module therefore runs no line of it; only a run
that uses the function imports it.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from platform_sdk.config.errors import UserError

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef | ast.Assign | ast.AnnAssign


def find_definition(name: str) -> Definition:
    """Return the syntax tree of ``module:name``, which the module must define or assign at its top level.

    Raises:
        ValueError: the module is Python's own, has no source on the Python path or is not valid Python, or it does
            not define the name.
    """
    module, _, wanted = name.partition(":")
    tree = parse_module(name)
    found = [node for node in tree.body if isinstance(node, Definition) and wanted in _names(node)]
    if not found:
        raise ValueError(
            f"{name} cannot be found: {source_file(module)} defines no function, class or value {wanted} at its top "
            "level"
        )
    return found[-1]


def find_function(name: str, *, may_be_async: bool = False) -> Function:
    """Return the syntax tree of a function named ``module:name``.

    Raises:
        ValueError: it cannot be found, is not a function, or is async and must not be.
    """
    if ":" not in name:
        raise ValueError(f"{name} names no function; write package.module:function")
    found = find_definition(name)
    if not isinstance(found, Function):
        raise ValueError(f"{name} is not a function")
    if isinstance(found, ast.AsyncFunctionDef) and not may_be_async:
        raise ValueError(f"{name} is not a function that can be called without await; remove async")
    return found


def parse_module(name: str) -> ast.Module:
    """Return the syntax tree of the module of ``module`` or ``module:name``.

    Raises:
        ValueError: the module is Python's own, has no source on the Python path or is not valid Python.
    """
    module = name.partition(":")[0]
    top = module.partition(".")[0]
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{name} names no module; write package.module:function")
    if top in sys.stdlib_module_names or top == "__main__":
        raise ValueError(f"{name} is refused: {top} is part of Python; name a module of your own or of a package")
    path = source_file(module)
    if path is None:
        raise ValueError(f"{name} cannot be found: no source of {module} on the Python path; check the spelling and "
                         "PYTHONPATH")  # fmt: skip
    try:
        return _parsed(path, path.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ValueError(f"{name} cannot be read: {path}{line} is not valid Python") from error


@lru_cache(maxsize=32)
def _parsed(path: Path, source: bytes) -> ast.Module:
    return ast.parse(source, filename=str(path))


def _names(node: Definition) -> list[str]:
    match node:
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=target, value=value):
            return [target.id] if isinstance(target, ast.Name) and value is not None else []
    return [node.name]


def accepts_one_argument(function: Function) -> bool:
    """Return True if the function can be called with a single positional argument."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    needs_keyword = any(default is None for default in arguments.kw_defaults)
    return required <= 1 and bool(positional or arguments.vararg) and not needs_keyword


def import_definition(name: str) -> Any:
    """Import the module of ``module:name`` and return what it defines.

    Raises:
        UserError: the module raises or exits while it is imported, or does not hold the name.
    """
    module, _, wanted = name.partition(":")
    try:
        return getattr(importlib.import_module(module), wanted)
    except (Exception, SystemExit) as error:  # foreign code, which may raise anything
        raise UserError(
            f"{name}: importing {module} failed: {type(error).__name__}: {error}; fix the module"
        ) from error


def add_source_folder(folder: Path) -> None:
    """Let modules in ``folder`` be found by this process and those it starts, after all that are found already."""
    place = str(folder.resolve())
    if place in sys.path or not (any(folder.glob("*.py")) or any(folder.glob("*/*.py"))):
        return
    sys.path.append(place)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), place]))


def source_file(module: str) -> Path | None:
    """Return the source file of a module; neither it nor the packages around it are imported."""
    top, *inner = module.split(".")
    spec = _found_spec(top)
    if spec is None:
        return None
    path = spec.origin if spec.origin and spec.has_location else None
    folders: Iterable[str] = spec.submodule_search_locations or ()
    for part in inner:
        places = [os.path.join(folder, part) for folder in folders]
        files = (file for place in places for file in (os.path.join(place, "__init__.py"), f"{place}.py"))
        path = next(filter(os.path.isfile, files), None)
        if path is None:
            folders = filter(os.path.isdir, places)  # a package without __init__.py
        else:
            folders = [os.path.dirname(path)] if os.path.basename(path) == "__init__.py" else []
    return Path(path) if path is not None and path.endswith(".py") else None


def _found_spec(top: str) -> ModuleSpec | None:
    """Return the spec of a top-level module: its own if it is imported, otherwise the first that a finder returns."""
    imported: ModuleSpec | None = getattr(sys.modules.get(top), "__spec__", None)
    if imported is not None:
        return imported
    specs = (finder.find_spec(top, None) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)
