"""Tables of ``figures.py``: what measures each, how it is recorded, and how a page shows it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platform_sdk.config.document import read_as
from platform_sdk.evaluation.cards.figures import amount
from platform_sdk.evaluation.seed_intervals import mean_of_shares, mean_over_seeds
from platform_sdk.studies.study import StudyDocument

HOME = Path(__file__).parents[1]
METRICS = {"em": "EM", "em_greedy": "greedy EM"}
KS = ("2", "5", "10")
COSTS = ("rollouts", "trajectories", "tokens_sampled", "tokens_trained", "optimizer_steps")

Record = dict[str, Any]
Cell = dict[str, Any]
"""Scores of each seed in percent by metric; ``intervals``, ``differences``, ``means`` and ``cost`` where measured."""


@dataclass(frozen=True)
class StudyTable:
    """Every cell of a study with each seed's scores."""

    name: str

    def commands(self, folder: Path | None = None) -> list[list[str]]:
        where = ["--folder", str(folder)] if folder else []
        file = f"studies/{self.name}.yaml"
        return [["study", "run", file, *where], ["study", "table", file, "--json", *where]]

    def shown(self) -> list[str]:
        return [f"hopforge {shlex.join(command)}" for command in self.commands()]

    def record(self, printed: Sequence[dict[str, Any]]) -> Record:
        """Return the record of a study from the JSON of ``study table``."""
        rows = [row for row in printed[-1]["rows"] if row["runs"]]
        n = max(metric["n"] for row in rows for metric in row["metrics"].values())
        counts = printed[-1]["counts"]
        return {"questions": n, "cells": {" · ".join(row["place"]): _cell(row, counts) for row in rows}}

    def render(self, records: Mapping[str, Record]) -> list[str]:
        document = read_as(StudyDocument, HOME / f"studies/{self.name}.yaml")
        record, axes = records[self.name], list(document.axes)
        means = list(dict.fromkeys(name for cell in record["cells"].values() for name in cell.get("means", ())))
        metrics = {name: title for name, title in METRICS.items() if name in document.metrics}
        head = [
            *axes,
            *(f"{title} {what}" for title in metrics.values() for what in ("of seeds", "mean", "difference")),
        ]
        rows = [[*head, *means], ["---"] * (len(axes) + 3 * len(metrics)) + ["---:"] * len(means)]
        for place, cell in record["cells"].items():
            levels = place.split(" · ")
            base = " · ".join(document.baseline.get(axis, level) for axis, level in zip(axes, levels, strict=True))
            other = record["cells"].get(base, {}) if base != place else {}
            scores = [text for metric in metrics for text in _scores(cell, other, metric, record["questions"])]
            own = cell.get("means", {})
            rows.append([*levels, *scores, *(f"{own[name]:g}" if name in own else "–" for name in means)])
        return _lines(rows)


@dataclass(frozen=True)
class StudyCost:
    """Cost of a study's cells until their mean score is the baseline's last, from the study's record.

    The figures are means over seeds, up to the first evaluation with this score. Time is left out: the studies ran on
    shared machines.
    """

    name: str
    study: str

    @property
    def studies(self) -> list[str]:
        """Name of the study whose record it shows."""
        return [self.study]

    def shown(self) -> list[str]:
        return StudyTable(self.study).shown()

    def render(self, records: Mapping[str, Record]) -> list[str]:
        axes = list(read_as(StudyDocument, HOME / f"studies/{self.study}.yaml").axes)
        cells = {place: cell["cost"] for place, cell in records[self.study]["cells"].items() if "cost" in cell}
        head = [*axes, "EM to reach", *(name.replace("_", " ").replace("optimizer", "optimiser") for name in COSTS)]
        rows = [head, ["---"] * len(axes) + ["---:"] * (1 + len(COSTS))]
        for place, cost in cells.items():
            spent = (f"{cost[name]:,.0f}" if name in cost else "not reached" for name in COSTS)
            rows.append([*place.split(" · "), f"{cost['score']:.1f}", *spent])
        return _lines(rows)


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
            texts = [_mean(cell, metric, record["questions"]) for metric in METRICS for cell in cells]
            seeds_text = "one seed" if seeds == 1 else str(seeds)
            rows.append([f"`{command}`", note, seeds_text, str(record["questions"]), *texts])
        return _lines(rows)


@dataclass(frozen=True)
class Recall:
    """Gold passages found by the retrieval of recipes: a row for each command."""

    name: str
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
        return {"rows": _lines([head, ["---", "---", *["---:"] * 4], *rows])}

    def render(self, records: Mapping[str, Record]) -> list[str]:
        rows: list[str] = records[self.name]["rows"]
        return rows


@dataclass(frozen=True)
class Kept:
    """Rows that were written by hand from the output of a command, and are kept as they were."""

    name: str
    command: str

    def shown(self) -> list[str]:
        return [self.command]

    def render(self, records: Mapping[str, Record]) -> list[str]:
        rows: list[str] = records[self.name]["rows"]
        return rows


def _cell(row: Mapping[str, Any], counts: Sequence[str]) -> Cell:
    """Return a cell of a study from its row in the JSON of ``study table``, in percent."""
    cell: Cell = {"intervals": {}, "differences": {}}
    for name in (name for name in METRICS if name in row["metrics"]):
        found = row["metrics"][name]
        cell[name] = {seed: _percent(value) for seed, value in zip(row["runs"], found["values"], strict=True)}
        cell["intervals"][name] = [_percent(found["low"]), _percent(found["high"])]
        if pair := found["paired"]:
            cell["differences"][name] = [_percent(pair[part]) for part in ("difference", "low", "high")]
    if cost := row["cost"]:
        spent = cost["reached"]["cost"] if cost["reached"] else {}
        cell["cost"] = {"score": _percent(cost["score"])} | {name: spent[name] for name in COSTS if name in spent}
    means = {name: found["mean"] for name, found in row["metrics"].items() if name not in METRICS}
    cell["means"] = {
        name.replace("_", " "): round(mean, 2) if name in counts else _percent(mean)
        for name, mean in means.items()
        if mean is not None
    }
    return cell


def _percent(share: float) -> float:
    return round(100 * share, 1)


def _scores(cell: Cell, base: Cell, metric: str, questions: int) -> Iterator[str]:
    """Yield the seeds' scores, their mean, and the difference to the base by the seeds that both have."""
    yield ", ".join(f"{value:.1f}" for value in cell[metric].values())
    yield _mean(cell, metric, questions)
    changes = [value - base[metric][seed] for seed, value in cell[metric].items() if seed in base.get(metric, ())]
    if measured := cell.get("differences", {}).get(metric):
        yield _interval(*measured, signed=True, one_seed=len(changes) == 1)
    elif len(changes) > 1:
        found = mean_over_seeds([[change] for change in changes], share=False)
        yield _interval(found.mean, found.low, found.high, signed=True)
    else:
        yield f"{amount(changes[0] / 100, signed=True)} (one seed)" if changes else ""


def _mean(cell: Cell, metric: str, questions: int) -> str:
    values = list(cell[metric].values())
    if metric in cell.get("intervals", ()):
        ends = cell["intervals"][metric]
    else:
        found = mean_of_shares([value / 100 for value in values], questions)
        ends = [100 * found.low, 100 * found.high]
    return _interval(sum(values) / len(values), *ends, one_seed=len(values) == 1)


def _interval(value: float, low: float, high: float, *, signed: bool = False, one_seed: bool = False) -> str:
    mean, *ends = (amount(each / 100, signed=signed).replace("-", "−") for each in (value, low, high))
    return f"{mean} ({ends[0]} to {ends[1]}{', one seed' if one_seed else ''})"


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in rows]
