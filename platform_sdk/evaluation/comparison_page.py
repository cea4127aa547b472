"""A self-contained HTML page of a comparison of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from platform_sdk.evaluation.cards.figures import name_of
from platform_sdk.evaluation.comparison_records import ComparedRun, Comparison, Cost, Spread
from platform_sdk.evaluation.comparison_text import (
    COST_COLUMNS,
    cost_rows,
    cost_title,
    evaluation_cells,
    headlines,
    leading_metrics,
    score_rows,
    score_text,
    spent_rows,
    time_to_score,
)
from platform_sdk.evaluation.report.charts import Interval, interval_plot
from platform_sdk.evaluation.report.content import HEADLINE, setting_text
from platform_sdk.evaluation.report.curves import PALETTE, Curve
from platform_sdk.evaluation.report.lines import Line, line_chart
from platform_sdk.evaluation.report.page import FOLDER
from platform_sdk.pages import render

UNITS = ((2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""Units of time: the shortest duration that is shown in a unit, and the unit's length, in seconds; its name."""


def build_comparison(comparison: Comparison) -> str:
    """Return the comparison as one HTML page."""
    groups, pair = comparison.groups, comparison.pair
    colours = [PALETTE[place % len(PALETTE)] for place in range(len(groups))]
    return render(
        FOLDER / "comparison.html.j2",
        ("hypergraph.js", "export.js"),
        name=" and ".join(group.name for group in groups),
        comparison=comparison,
        coloured=list(zip(groups, colours, strict=True)),
        headlines=headlines(comparison),
        estimators=sorted({str(change.estimator) for change in comparison.differences}),
        time_to_score=time_to_score(comparison),
        cost_columns=COST_COLUMNS,
        cost_title=cost_title(comparison) if comparison.reached else "",
        costs=cost_rows(comparison),
        spent=spent_rows(comparison) if pair else [],
        scores=score_rows(comparison),
        metrics=leading_metrics(comparison) if pair else comparison.metrics,
        means=[name_of(metric) for metric in comparison.metrics if metric in comparison.counts],
        name_of=name_of,
        runs=[
            (
                group.name,
                run,
                [score_text(comparison, each, group.spreads[each].values[place]) for each in comparison.metrics],
                list(zip(run.evaluations, evaluation_cells(comparison, run), strict=True)),
            )
            for group in groups
            for place, run in enumerate(group.runs)
        ],
        plot=None if pair else _plot(comparison, colours),
        curves=_cost_curves(comparison, colours),
        recipes=[(name, [setting_text(value) for value in values]) for name, values in comparison.recipes],
    )


def _plot(comparison: Comparison, colours: Sequence[str]) -> Any:
    rows = [
        (
            name_of(metric),
            [
                _interval(group.name, group.spreads[metric], colour)
                for group, colour in zip(comparison.groups, colours, strict=True)
            ],
        )
        for metric in comparison.metrics
        if metric not in comparison.counts
    ]
    return interval_plot(rows) if rows else None


def _interval(name: str, spread: Spread, colour: str) -> Interval:
    return Interval(name, spread.mean, spread.low, spread.high, colour)


def _cost_curves(comparison: Comparison, colours: Sequence[str]) -> list[Curve]:
    """Draw the leading metrics of each run against time, rollouts, sampled tokens and trajectories."""
    longest = max((run.last.cost.seconds for run in comparison.runs), default=0.0)
    _, size, unit = next(unit for unit in UNITS if longest >= unit[0])
    measured = {name for run in comparison.runs for each in run.evaluations for name in each.scores}
    axes: list[tuple[str, str, Callable[[Cost], float]]] = [
        ("time", unit, lambda cost: cost.seconds / size),
        ("rollouts", "rollouts", lambda cost: cost.rollouts),
        ("sampled tokens", "tokens", lambda cost: cost.tokens_sampled),
        ("trajectories", "trajectories trained on", lambda cost: cost.trajectories),
    ]
    runs = [
        (group.name if comparison.pair else f"{group.name}, seed {run.seed}", colour, run)
        for group, colour in zip(comparison.groups, colours, strict=True)
        for run in group.runs
    ]
    curves = []
    for metric in dict.fromkeys((comparison.metric, f"{comparison.metric}_greedy", *HEADLINE)):
        if metric not in measured:
            continue
        for name, axis, spent in axes:
            title = f"{name_of(metric)} against {name}"
            lines = [_line(*run, metric, spent, bounded=comparison.pair) for run in runs]
            chart = line_chart(title, lines, unit=metric not in comparison.counts, x=axis)
            curves.append(Curve(title, lines, chart, axis))
    return curves


def _line(
    name: str, colour: str, run: ComparedRun, metric: str, spent: Callable[[Cost], float], *, bounded: bool
) -> Line:
    measured = [(each.cost, each.scores[metric]) for each in run.evaluations if metric in each.scores]
    bounds = [(score.low, score.high) for _, score in measured if score.low is not None and score.high is not None]
    return Line(
        name,
        [(float(spent(cost)), score.value) for cost, score in measured],
        colour,
        bounds=bounds if bounded and len(bounds) == len(measured) else (),
    )
