"""Tables of studies in ``figures.py``: their commands, record, lines on a page and picture."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figure_charts import Score, score_chart
from figure_runs import RunCost

from platform_sdk.config.document import read_as
from platform_sdk.evaluation.cards.figures import amount, duration
from platform_sdk.run_dir import FINAL_EVALUATION
from platform_sdk.studies.study import StudyDocument

HOME = Path(__file__).parents[1]
METRICS = {"em": "EM", "em_greedy": "greedy EM"}
COSTS = ("rollouts", "trajectories", "tokens_sampled", "tokens_trained", "optimizer_steps")
QUESTIONS = "training_questions"
BUDGET = ("rollouts", "optimizer_steps", QUESTIONS)

Record = dict[str, Any]
Cell = dict[str, Any]
"""Scores of each seed in percent by metric; ``intervals``, ``differences``, ``means``, the names of the ``runs``, and
``cost`` and ``budget`` where measured."""


@dataclass(frozen=True)
class StudyTable:
    """Every cell of a study with each seed's scores.

    ``budget`` adds the cells' rollouts, steps and questions. ``titles`` are the metrics with intervals and a place in
    the picture; the table has only the means of the study's other metrics.
    """

    name: str
    budget: bool = False
    titles: Mapping[str, str] = field(default_factory=lambda: METRICS)

    def commands(self, folder: Path | None = None) -> list[list[str]]:
        where = ["--folder", str(folder)] if folder else []
        file = f"studies/{self.name}.yaml"
        return [["study", "run", file, *where], ["study", "table", file, "--json", *where]]

    def shown(self) -> list[str]:
        return [f"hopforge {shlex.join(command)}" for command in self.commands()]

    def record(self, printed: Sequence[dict[str, Any]], costs: Mapping[str, RunCost]) -> Record:
        """Return the record of a study from the JSON of ``study table`` and the costs of its runs by run directory."""
        rows = [row for row in printed[-1]["rows"] if row["runs"]]
        n = max(metric["n"] for row in rows for metric in row["metrics"].values())
        counts = printed[-1]["counts"]
        cells = {" · ".join(row["place"]): _cell(row, counts, self.titles) for row in rows}
        for row, cell in zip(rows, cells.values(), strict=True):
            _add_costs(cell, row, costs, budget=self.budget)
        record = {
            "questions": n,
            "hardware": sorted({cost.hardware for cost in costs.values()}),
            "seconds": {Path(run).name: cost.seconds for run, cost in costs.items()},
            "cpu_seconds": {Path(run).name: cost.cpu_seconds for run, cost in costs.items()},
            "cells": cells,
        }
        averages = {
            " · ".join(row["place"]): _differences(row, self.titles) for row in printed[-1]["rows"] if not row["runs"]
        }
        if found := {place: differences for place, differences in averages.items() if differences}:
            record["averages"] = found
        return record

    def render(self, records: Mapping[str, Record]) -> list[str]:
        document = read_as(StudyDocument, HOME / f"studies/{self.name}.yaml")
        record, axes = records[self.name], list(document.axes)
        means = list(dict.fromkeys(name for cell in record["cells"].values() for name in cell.get("means", ())))
        metrics = self._metrics()
        several = any(len(cell[metric]) > 1 for cell in record["cells"].values() for metric in metrics)
        columns = ("of seeds", "mean", "difference") if several else ("", "difference")
        head = [*axes, *(f"{title} {what}".rstrip() for title in metrics.values() for what in columns)]
        budget = [name for name in BUDGET if any(name in cell.get("budget", ()) for cell in record["cells"].values())]
        right = [*means, *map(_title, budget)]
        rows = [[*head, *right], ["---"] * (len(axes) + len(columns) * len(metrics)) + ["---:"] * len(right)]
        for place, cell in record["cells"].items():
            levels = place.split(" · ")
            base = " · ".join(document.baseline.get(axis, level) for axis, level in zip(axes, levels, strict=True))
            other = record["cells"].get(base, {}) if base != place else {}
            scores = [text for metric in metrics for text in [*_scores(cell, other, metric)][-len(columns) :]]
            own, spent = cell.get("means", {}), cell.get("budget", {})
            rows.append(
                [
                    *levels, *scores,
                    *(f"{own[name]:g}" if name in own else "–" for name in means),
                    *(f"{spent[name]:,.0f}" if name in spent else "–" for name in budget),
                ]
            )  # fmt: skip
        for place, differences in record.get("averages", {}).items():
            averaged = (
                text
                for metric in metrics
                for text in (
                    *[""] * (len(columns) - 1),
                    _interval(*differences[metric], signed=True) if metric in differences else "",
                )
            )
            rows.append([*place.split(" · "), *averaged, *[""] * len(right)])
        titles = " and ".join(metrics.values())
        alt = f"{titles} of every row of {self.name}: each seed, and the mean with its 95 % interval"
        return [*table_lines(rows), "", f"![{alt}](images/{self.name}.svg)", "", self._measured(record)]

    def picture(self, records: Mapping[str, Record]) -> str:
        """Return the picture of the scores as an SVG file."""
        metrics = self._metrics()
        rows = [
            (place, [Score(tuple(cell[name].values()), *_bounds(cell, name)) for name in metrics])
            for place, cell in records[self.name]["cells"].items()
        ]
        return score_chart(f"Scores of {self.name}", list(metrics.values()), rows)

    def _metrics(self) -> dict[str, str]:
        document = read_as(StudyDocument, HOME / f"studies/{self.name}.yaml")
        return {name: title for name, title in self.titles.items() if name in document.metrics}

    def _measured(self, record: Record) -> str:
        """Return the command, and the sums of the times of the runs whose time is recorded."""
        command = f"`python docs/figures.py {self.name}`"
        known = {run: seconds for run, seconds in record.get("seconds", {}).items() if seconds is not None}
        cpu = {
            run: seconds
            for run, seconds in record.get("cpu_seconds", {}).items()
            if seconds is not None and run in known
        }
        untimed = {
            place: sum(cell.get("runs", {}).get(seed) not in known for seed in cell["em"])
            for place, cell in record["cells"].items()
        }
        unknown = [f"{_runs(count)} of `{place}`" for place, count in untimed.items() if count]
        spent = f"{duration(sum(known.values()))} of wall time"
        if unknown:
            spent += f" for {len(known)} of {_runs(len(known) + sum(untimed.values()))}"
        else:
            spent = f"{_runs(len(known))}, {spent} in all"
        spent += f" ({'; '.join(record['hardware'])})"
        if cpu:
            of = "" if cpu.keys() >= known.keys() else f" of {len(cpu)} of them"
            spent += f"; CPU time{of} {duration(sum(cpu.values()))}"
        return f"{command}; {spent}." + (f" No time is recorded for {' and '.join(unknown)}." if unknown else "")


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
        names = (*COSTS, QUESTIONS)
        head = [*axes, "EM to reach", *map(_title, names)]
        rows = [head, ["---"] * len(axes) + ["---:"] * (1 + len(names))]
        for place, cost in cells.items():
            reached = any(name in cost for name in names)
            unknown = "–" if reached else "not reached"
            spent = (f"{cost[name]:,.0f}" if name in cost else unknown for name in names)
            rows.append([*place.split(" · "), f"{cost['score']:.1f}", *spent])
        return table_lines(rows)


def _cell(row: Mapping[str, Any], counts: Sequence[str], titles: Mapping[str, str]) -> Cell:
    """Return a cell of a study from its row in the JSON of ``study table``, in percent."""
    cell: Cell = {"intervals": {}, "differences": _differences(row, titles)}
    for name in (name for name in titles if name in row["metrics"]):
        found = row["metrics"][name]
        cell[name] = {seed: _percent(value) for seed, value in zip(row["runs"], found["values"], strict=True)}
        cell["intervals"][name] = [_percent(found["low"]), _percent(found["high"])]
    if cost := row["cost"]:
        spent = cost["reached"]["cost"] if cost["reached"] else {}
        cell["cost"] = {"score": _percent(cost["score"])} | {
            name: spent[name] for name in COSTS if spent.get(name) is not None
        }
    means = {name: found["mean"] for name, found in row["metrics"].items() if name not in titles}
    cell["means"] = {
        name.replace("_", " "): round(mean, 2) if name in counts else _percent(mean)
        for name, mean in means.items()
        if mean is not None
    }
    return cell


def _differences(row: Mapping[str, Any], titles: Mapping[str, str]) -> dict[str, list[float]]:
    """Return the differences to the baseline with their ends, by metric."""
    pairs = {name: row["metrics"][name]["paired"] for name in titles if name in row["metrics"]}
    return {
        name: [_percent(pair[part]) for part in ("difference", "low", "high")] for name, pair in pairs.items() if pair
    }


def _add_costs(cell: Cell, row: Mapping[str, Any], costs: Mapping[str, RunCost], *, budget: bool) -> None:
    """Add the names of a cell's runs to its record, and the means of their costs if the table shows the budget."""
    cell["runs"] = {seed: Path(run).name for seed, run in row["runs"].items()}
    if not budget:
        return
    spent = [costs[run] for run in row["runs"].values()]
    columns: dict[str, list[int | None]] = {
        "rollouts": [cost.rollouts for cost in spent],
        "optimizer_steps": [cost.optimizer_steps for cost in spent],
        QUESTIONS: [cost.questions[FINAL_EVALUATION] for cost in spent],
    }
    cell["budget"] = {name: mean for name, values in columns.items() if (mean := _mean_count(values)) is not None}
    if row["cost"] and (reached := row["cost"]["reached"]):
        cell["cost"][QUESTIONS] = _mean_count([cost.questions[reached["phase"]] for cost in spent])


def _mean_count(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if len(known) == len(values) else None


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _title(name: str) -> str:
    return name.replace("_", " ").replace("optimizer", "optimiser")


def _percent(share: float) -> float:
    return round(100 * share, 1)


def _scores(cell: Cell, base: Cell, metric: str) -> Iterator[str]:
    """Yield the seeds' scores, their mean, and the difference to the base, marked if both have one seed only."""
    yield ", ".join(f"{value:.1f}" for value in cell[metric].values())
    yield mean_text(cell, metric)
    shared = cell[metric].keys() & base.get(metric, {}).keys()
    measured = cell["differences"].get(metric)
    yield _interval(*measured, signed=True, one_seed=len(shared) == 1) if measured else ""


def mean_text(cell: Cell, metric: str) -> str:
    return _interval(*_bounds(cell, metric), one_seed=len(cell[metric]) == 1)


def _bounds(cell: Cell, metric: str) -> tuple[float, float, float]:
    """Return the mean over seeds and the ends of its 95 % interval."""
    values = list(cell[metric].values())
    low, high = cell["intervals"][metric]
    return sum(values) / len(values), low, high


def _interval(value: float, low: float, high: float, *, signed: bool = False, one_seed: bool = False) -> str:
    mean, *ends = (amount(each / 100, signed=signed).replace("-", "−") for each in (value, low, high))
    return f"{mean} ({ends[0]} to {ends[1]}{', one seed' if one_seed else ''})"


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in rows]
