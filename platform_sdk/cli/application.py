"""Typer application with lazily imported commands, and help texts without markup."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")


class _Parameters:
    """Mixin that shows flags without a type in the help."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return parameters


class _Command(_Parameters, TyperCommand):
    @property
    def help(self) -> str | None:
        """Docstring without markup, wrapped to the terminal's width."""
        if self._docstring is None:
            return None
        from rich.markup import escape  # only help needs rich

        return _LINE_BREAK.sub(" ", escape(inspect.cleandoc(self._docstring)))

    @help.setter
    def help(self, docstring: str | None) -> None:
        self._docstring = docstring


class _Commands(Mapping[str, Any]):
    """Commands by name; the module of a command is imported when the command is looked up."""

    def __init__(self, sources: Mapping[str, Mapping[str, str]], package: str) -> None:
        self._sources = {
            name: (heading, source) for heading, table in sources.items() for name, source in table.items()
        }
        self._package = package
        self._imported: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._imported:
            heading, source = self._sources[name]
            module, _, attribute = source.partition(":")
            self._imported[name] = _command(
                name, heading, getattr(import_module(f"{self._package}.{module}"), attribute)
            )
        return self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


class _Group(_Parameters, TyperGroup):
    table: _Commands | None = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self.table is not None:
            self.commands: Any = self.table

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            return None
        return self.commands[cmd_name]  # unlike get, this shows a KeyError of the imported module


class Application(typer.Typer):
    """Typer application whose help is written in the commands' docstrings.

    Args:
        sources: By heading in the help, the function or ``Application`` of each command as ``module:name``. A module is
            imported for a call of its command and for the application's help.
        package: Package of the modules.
        settings: Further settings of ``typer.Typer``.
    """

    def __init__(
        self, sources: Mapping[str, Mapping[str, str]] | None = None, package: str = "", **settings: Any
    ) -> None:
        table = None if sources is None else _Commands(sources, package)
        super().__init__(cls=type("_Group", (_Group,), {"table": table}), **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        options = {"cls": _Command, **settings}
        return super().command(name, **options)


def _command(name: str, heading: str, source: typer.Typer | Callable[..., None]) -> Any:
    application = Application()
    application.callback()(lambda: None)
    if isinstance(source, typer.Typer):
        application.add_typer(source, name=name, rich_help_panel=heading)
    else:
        application.command(name, rich_help_panel=heading)(source)
    return get_group(application).commands[name]
