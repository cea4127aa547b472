"""The command line's output. All text passes here, so that nothing in it can steer the terminal."""

from __future__ import annotations

from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from platform_sdk.credentials import without_credentials
from platform_sdk.display import printable


def say(text: object, *, err: bool = False) -> None:
    """Print text for people, without passwords in URLs."""
    typer.echo(printable(without_credentials(str(text))), err=err)


class Terminal(Console):
    """A console whose texts cannot steer the terminal; its own styles still do."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
