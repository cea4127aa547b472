"""A comparison of several runs and seeds in words, as table rows, and as one HTML page."""

from __future__ import annotations

from typing import Any, NamedTuple

from platform_sdk.evaluation.cards.figures import amount, name_of
from platform_sdk.evaluation.cost_curves import Costed, cost_curves
from platform_sdk.evaluation.report.charts import Interval, interval_plot
from platform_sdk.evaluation.report.content import kind_of, p_text, setting_text
from platform_sdk.evaluation.report.curves import PALETTE
from platform_sdk.evaluation.report.page import FOLDER
from platform_sdk.evaluation.seeds import Group, GroupDifference, SeedComparison, Spread
from platform_sdk.pages import render


class Cell(NamedTuple):
    """A value with its interval as text; ``kind`` is good, bad or even, as the interval lies to zero."""

    value: str
    interval: str = ""
    kind: str = "even"


def headlines(comparison: SeedComparison) -> list[str]:
    """Say how each other group differs from the first."""
    first = comparison.groups[0]
    found = []
    for group in comparison.groups[1:]:
        change = _difference(comparison, group, comparison.metric)
        cell = difference_cell(comparison, change)
        apart = "" if cell.kind != "even" else " The interval holds 0: they cannot be told apart."
        means = [mean_cell(comparison, comparison.metric, one).value for one in (first, group)]
        p = p_text(change.p_value)
        sides = f"{means[0]} for {first.name} and {means[1]} for {group.name}"
        found.append(
            f"{name_of(comparison.metric)} {sides}: a difference of {cell.value} (95 %: {cell.interval}, p {p}), "
            f"paired over {change.n} questions, {len(first.runs)} and {len(group.runs)} seeds.{apart}"
        )
    return found


def mean_cell(comparison: SeedComparison, metric: str, group: Group) -> Cell:
    """Return the mean of a group's runs with its interval over seeds."""
    spread = group.spreads[metric]
    ends = [] if spread.low is None or spread.high is None else [spread.low, spread.high]
    return Cell(_amount(comparison, metric, spread.mean), " to ".join(_amount(comparison, metric, end) for end in ends))


def difference_cell(comparison: SeedComparison, change: GroupDifference) -> Cell:
    """Return a difference with its interval."""
    value, low, high = (
        amount(each, count=change.metric in comparison.counts, signed=True)
        for each in (change.difference, change.low, change.high)
    )
    return Cell(value, f"{low} to {high}", kind_of(change.low, change.high))


def score_rows(comparison: SeedComparison) -> list[tuple[str, list[Cell]]]:
    """Return a row for each metric: the mean of each group, then the differences to the first."""
    metrics = list(comparison.groups[0].spreads)
    return [
        (
            name_of(metric),
            [
                *(mean_cell(comparison, metric, group) for group in comparison.groups),
                *(
                    difference_cell(comparison, _difference(comparison, group, metric))
                    for group in comparison.groups[1:]
                ),
            ],
        )
        for metric in metrics
    ]


def build_seed_comparison(comparison: SeedComparison) -> str:
    """Return the comparison as one HTML page."""
    metrics = list(comparison.groups[0].spreads)
    colours = [PALETTE[place % len(PALETTE)] for place in range(len(comparison.groups))]
    return render(
        FOLDER / "seeds.html.j2",
        ("hypergraph.js", "export.js"),
        name=" and ".join(group.name for group in comparison.groups),
        comparison=comparison,
        headlines=headlines(comparison),
        rows=score_rows(comparison),
        metrics=metrics,
        name_of=name_of,
        coloured=list(zip(comparison.groups, colours, strict=True)),
        runs=[
            (group.name, seed, run, [_amount(comparison, each, group.spreads[each].values[place]) for each in metrics])
            for group in comparison.groups
            for place, (seed, run) in enumerate(zip(group.seeds, group.runs, strict=True))
        ],
        plot=_plot(comparison, colours),
        curves=cost_curves(
            [
                Costed(f"{group.name}, seed {seed}", colour, taken, bounded=False)
                for group, colour in zip(comparison.groups, colours, strict=True)
                for seed, taken in zip(group.seeds, group.evaluations, strict=True)
            ],
            comparison.metric,
            comparison.counts,
        ),
        recipes=[(name, [setting_text(value) for value in values]) for name, values in comparison.recipes],
    )


def _plot(comparison: SeedComparison, colours: list[str]) -> Any:
    rows = [
        (
            name_of(metric),
            [
                _interval(group.name, group.spreads[metric], colour)
                for group, colour in zip(comparison.groups, colours, strict=True)
            ],
        )
        for metric in comparison.groups[0].spreads
        if metric not in comparison.counts
    ]
    return interval_plot(rows) if rows else None


def _interval(name: str, spread: Spread, colour: str) -> Interval:
    low, high = (spread.mean if end is None else end for end in (spread.low, spread.high))
    return Interval(name, spread.mean, low, high, colour)


def _difference(comparison: SeedComparison, group: Group, metric: str) -> GroupDifference:
    return next(one for one in comparison.differences if (one.group, one.metric) == (group.name, metric))


def _amount(comparison: SeedComparison, metric: str, value: float) -> str:
    return amount(value, count=metric in comparison.counts)
