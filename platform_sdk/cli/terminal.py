"""Rich output of the command line: a console whose texts cannot steer the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from platform_sdk.cli.output import say as say
from platform_sdk.display import printable


class Terminal(Console):
    """A console whose texts cannot steer the terminal; its own styles still do."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
