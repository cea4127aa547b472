"""The command line's frame: commands under headings, and help that shows what was written."""

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
    """Typer application with headings for its commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, **settings)
        self._heading: str | None = None

    def group(self, heading: str) -> Application:
        """Return this application; commands attached from now on are listed under ``heading``."""
        self._heading = heading
        return self

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        def attach(function: Any) -> Any:
            # Docstrings are broken where the code is wide enough, help where the terminal is.
            help = _LINE_BREAK.sub(" ", escape(inspect.cleandoc(function.__doc__ or "")))
            options = {"cls": _Command, "rich_help_panel": self._heading, "help": help, **settings}
            return super(Application, self).command(name, **options)(function)

        return attach

    def add_typer(self, typer_instance: typer.Typer, **settings: Any) -> None:
        super().add_typer(typer_instance, **{"rich_help_panel": self._heading, **settings})
