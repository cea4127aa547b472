"""The command line's frame: help that shows what was written."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")


class _Parameters:
    """Shows switches without a type, and square brackets in help as they are: ``[low, high]`` is not markup."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return parameters


class _Command(_Parameters, TyperCommand):
    pass


class _Group(_Parameters, TyperGroup):
    pass


class Application(typer.Typer):
    """Typer application whose help is written in the commands' docstrings."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        def attach(function: Any) -> Any:
            # Docstrings are broken where the code is wide enough, help where the terminal is.
            help = _LINE_BREAK.sub(" ", escape(inspect.cleandoc(function.__doc__ or "")))
            options = {"cls": _Command, "help": help, **settings}
            return super(Application, self).command(name, **options)(function)

        return attach
