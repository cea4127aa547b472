"""Tables of ``figures.py`` other than studies: the commands that measure each, its record, and its lines on a page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figure_studies import METRICS, Record, mean_text, table_lines

KS = ("2", "5", "10")


@dataclass(frozen=True)
class Summary:
    """Scores before and after training of cells in records; rows are note, study, cell before, cell after."""

    name: str
    rows: tuple[tuple[str, str, str, str], ...]

    def shown(self) -> list[str]:
        return [f"hopforge study run studies/{study}.yaml" for _, study, _, _ in self.rows]

    @property
    def studies(self) -> list[str]:
        """Names of the studies whose records it shows."""
        return list(dict.fromkeys(study for _, study, _, _ in self.rows))

    def render(self, records: Mapping[str, Record]) -> list[str]:
        head = ["command", "", "seeds", "questions", "sampled: before", "after", "greedy: before", "after"]
        rows = [head, ["---", "---", *["---:"] * 6]]
        for command, (note, study, before, after) in zip(self.shown(), self.rows, strict=True):
            record = records[study]
            cells = [record["cells"][name] for name in (before, after)]
            seeds = len(cells[1]["em"])
            texts = [mean_text(cell, metric) for metric in METRICS for cell in cells]
            seeds_text = "one seed" if seeds == 1 else str(seeds)
            rows.append([f"`{command}`", note, seeds_text, str(record["questions"]), *texts])
        return table_lines(rows)


@dataclass(frozen=True)
class Rows:
    """A table whose record has its rows as they are shown."""

    name: str

    def render(self, records: Mapping[str, Record]) -> list[str]:
        rows: list[str] = records[self.name]["rows"]
        return rows


@dataclass(frozen=True)
class Recall(Rows):
    """Gold passages found by the retrieval of recipes: a row for each command."""

    rows: tuple[tuple[str, tuple[str, ...]], ...]

    def commands(self, folder: Path | None = None) -> list[list[str]]:
        return [
            ["recall", *arguments, *(["--workdir", str(folder / f"recall-{n}"), "--json"] if folder else [])]
            for n, (_, arguments) in enumerate(self.rows)
        ]

    def shown(self) -> list[str]:
        return [f"hopforge {shlex.join(command)}" for command in self.commands()]

    def record(self, printed: Sequence[dict[str, Any]]) -> Record:
        """Return the record from the JSON of each ``recall``."""
        rows = [
            [f"`{command}`", note, str(each["n"]), *(f"{100 * each['recall'][k]:.1f}" for k in KS)]
            for command, (note, _), each in zip(self.shown(), self.rows, printed, strict=True)
        ]
        head = ["command", "", "questions", "recall@2", "@5", "@10"]
        return {"rows": table_lines([head, ["---", "---", *["---:"] * 4], *rows])}


@dataclass(frozen=True)
class Script(Rows):
    """Rows that a benchmark prints; it reads the data sets in ``HOPFORGE_DATA``."""

    arguments: tuple[str, ...]

    def shown(self) -> list[str]:
        return [f"python {shlex.join(self.arguments)}"]

    def record(self, printed: str) -> Record:
        return {"rows": [line for line in printed.splitlines() if line.startswith("|")]}


@dataclass(frozen=True)
class Kept(Rows):
    """Rows that were written by hand from the output of a command, and are kept as they were."""

    command: str

    def shown(self) -> list[str]:
        return [self.command]
