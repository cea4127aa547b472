"""Rich console that escapes control characters and replaces no emoji codes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from platform_sdk.cli.output import say as say
from platform_sdk.display import printable

PIPED = 200
"""Columns of output that goes to a file or another program, unless COLUMNS is set."""


class Terminal(Console):
    """Console that escapes control characters in texts, but keeps its own styles.

    A text such as ``:key:`` is printed unchanged. In a pipe, tables may be ``PIPED`` columns wide.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(emoji=False, **settings)
        if not self.is_terminal and settings.get("width") is None and "COLUMNS" not in os.environ:
            self.width = PIPED

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
