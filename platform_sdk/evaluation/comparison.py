"""A comparison of two runs in words, as table rows, and as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from platform_sdk.evaluation.cards.figures import amount, duration, name_of
from platform_sdk.evaluation.compare import Comparison, Cost, Evaluation, Side
from platform_sdk.evaluation.cost_curves import Costed, cost_curves
from platform_sdk.evaluation.report.content import kind_of, p_text, setting_text
from platform_sdk.evaluation.report.page import FOLDER
from platform_sdk.pages import render

COLOURS = ("c-final", "c-threshold")
MANIFOLD = 2.0  # from here on a ratio is said as a multiple, not in percent


@dataclass(frozen=True)
class SpentRow:
    """A line of the table of what was spent; ``change`` is the second relative to the first."""

    name: str
    first: str
    second: str
    change: str


@dataclass(frozen=True)
class ScoreRow:
    """A line of the table of last scores; ``kind`` is good, bad or even, as the interval lies to zero."""

    name: str
    first: str
    second: str
    difference: str
    interval: str
    p: str
    n: str
    kind: str


def spent_rows(comparison: Comparison) -> list[SpentRow]:
    """Return what either run spent, line by line."""
    costs = (comparison.first.cost, comparison.second.cost)
    before = (comparison.first.preparation, comparison.second.preparation)
    rows = [_row("time", duration, *(cost.seconds for cost in costs))]
    for name, field in (
        ("sampling", "sampling_seconds"),
        ("training", "training_seconds"),
        ("giving the engine the weights", "sync_seconds"),
    ):
        rows.append(_row(f"· {name}", duration, *(getattr(cost, field) for cost in costs)))
    rows.append(_row("· before the first evaluation", duration, *(cost.seconds for cost in before)))
    for name, field in (
        ("rollouts sampled", "rollouts"),
        ("trajectories trained on", "trajectories"),
        ("tokens sampled", "tokens_sampled"),
        ("tokens trained on", "tokens_trained"),
    ):
        rows.append(_row(name, _count, *(getattr(cost, field) for cost in costs)))
    return [row for row in rows if {row.first, row.second} != {duration(0.0)}]


def score_rows(comparison: Comparison) -> list[ScoreRow]:
    """Return the last scores and their paired differences, line by line."""
    return [
        ScoreRow(
            name=name_of(found.metric),
            first=_score(comparison, found.metric, found.first),
            second=_score(comparison, found.metric, found.second),
            difference=_score(comparison, found.metric, found.difference, signed=True),
            interval=" to ".join(
                _score(comparison, found.metric, end, signed=True) for end in (found.low, found.high)
            ),
            p=p_text(found.p_value).removeprefix("= "),
            n=str(found.n),
            kind=kind_of(found.low, found.high),
        )
        for found in comparison.differences
    ]  # fmt: skip


def headline(comparison: Comparison) -> str:
    """Say how the last scores of the two runs differ on the same questions."""
    metric = comparison.metric
    found = comparison.difference(metric)
    [row] = [row for row in score_rows(comparison) if row.name == name_of(metric)]
    told = "" if row.kind != "even" else " The interval holds 0: the runs cannot be told apart."
    sides = f"{row.first} for {comparison.first.name} and {row.second} for {comparison.second.name}"
    return (
        f"{row.name} {sides}: a difference of {row.difference} (95 %: {row.interval}, p {p_text(found.p_value)}), "
        f"paired over {row.n} questions.{told}"
    )


def sentence(comparison: Comparison) -> str:
    """Say where either run first shows the requested score, and at what ratio of time and trajectories."""
    reached, sides = comparison.reached, (comparison.first, comparison.second)
    if reached is None:
        return (
            f"The runs have no {name_of(comparison.metric)} in common that is above the first one of both, so time and "
            "trajectories to a score are not compared."
        )
    goal = f"{name_of(reached.metric)} {_score(comparison, reached.metric, reached.score)}"
    places = [_place(side, taken) for side, taken in zip(sides, (reached.first, reached.second), strict=True)]
    said = f"{goal} is first shown by {places[0]}, and by {places[1]}."
    ratios = [
        text
        for ratio, less, unit in ((reached.time, "less", "time"), (reached.trajectories, "fewer", "trajectories"))
        if ratio is not None and (text := _times(ratio, less, unit))
    ]
    return f"{said} {comparison.second.name} takes {' and '.join(ratios)}." if ratios else said


def build_comparison(comparison: Comparison) -> str:
    """Return the comparison as one HTML page."""
    metrics = list(dict.fromkeys((comparison.metric, *(found.metric for found in comparison.differences))))
    return render(
        FOLDER / "comparison.html.j2",
        ("hypergraph.js", "export.js"),
        name=f"{comparison.first.name} and {comparison.second.name}",
        comparison=comparison,
        recipes=[(name, setting_text(old), setting_text(new)) for name, old, new in comparison.recipes],
        headline=headline(comparison),
        sentence=sentence(comparison),
        spent=spent_rows(comparison),
        scores=score_rows(comparison),
        means=[name_of(found.metric) for found in comparison.differences if found.metric in comparison.counts],
        curves=cost_curves(
            [
                Costed(side.name, colour, side.evaluations)
                for side, colour in zip((comparison.first, comparison.second), COLOURS, strict=True)
            ],
            comparison.metric,
            comparison.counts,
        ),
        metrics=metrics,
        taken=_taken(comparison, metrics),
        name_of=name_of,
    )


def _taken(comparison: Comparison, metrics: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "run": side.name,
            "phase": taken.phase,
            "cells": [
                str(taken.step),
                duration(taken.cost.seconds),
                _count(taken.cost.trajectories),
                _count(taken.cost.rollouts),
                *(
                    _score(comparison, metric, taken.scores[metric].value) if metric in taken.scores else "–"
                    for metric in metrics
                ),
            ],
        }
        for side in (comparison.first, comparison.second)
        for taken in side.evaluations
    ]


def _place(side: Side, taken: Evaluation | None) -> str:
    if taken is None:
        return f"{side.name} never"
    return f"{side.name} after {_spent(taken.cost)} ({taken.phase})"


def _spent(cost: Cost) -> str:
    return f"{duration(cost.seconds)} and {_count(cost.trajectories)} trajectories"


def _times(ratio: float, less: str, unit: str) -> str:
    if ratio >= MANIFOLD:
        return f"{ratio:.3g} times the {unit}"
    percent = round(100 * abs(ratio - 1))
    if not percent:
        return f"as {'much' if less == 'less' else 'many'} {unit}"
    return f"{percent} % {less if ratio < 1 else 'more'} {unit}"


def _row(name: str, write: Any, first: float, second: float) -> SpentRow:
    if not first:
        change = "–"
    elif second / first >= MANIFOLD:
        change = f"× {second / first:.3g}"
    else:
        change = f"{100 * (second / first - 1):+.0f} %".replace("-", "−")
    return SpentRow(name, write(first), write(second), change)


def _count(value: float) -> str:
    return f"{int(value):,}"


def _score(comparison: Comparison, metric: str, value: float, *, signed: bool = False) -> str:
    return amount(value, count=metric in comparison.counts, signed=signed)
