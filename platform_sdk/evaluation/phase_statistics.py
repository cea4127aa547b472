"""Statistics of a step's data, in a file that reports show for any method."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.config.struct import Struct
from platform_sdk.files import read_model, write_text
from platform_sdk.run_dir import PhaseDir

FILE = PhaseDir.statistics
Cell = str | int | float | None


class Table(Struct):
    """A table; every row has as many cells as the head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Message(Struct):
    """A message of an example dialogue; ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


class Dialogue(Struct):
    """An example dialogue."""

    title: str
    messages: tuple[Message, ...]


class Statistics(Struct):
    """Statistics of a phase's data: one sentence, tables, and some examples."""

    title: str
    summary: str
    tables: tuple[Table, ...] = ()
    dialogues: tuple[Dialogue, ...] = ()

    def write(self, folder: Path) -> None:
        """Write the file into a phase's folder."""
        write_text(folder / FILE, self.model_dump_json(indent=2) + "\n")


def read_statistics(folder: Path) -> Statistics | None:
    """Return the statistics of a phase, if it has any.

    Raises:
        UserError: the file was altered.
    """
    path = folder / FILE
    return read_model(path, Statistics) if path.is_file() else None
