"""Sentences and table rows of a comparison of runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from platform_sdk.evaluation.cards.figures import amount, duration, name_of
from platform_sdk.evaluation.comparison_records import (
    ComparedRun,
    Comparison,
    Cost,
    CostToScore,
    Difference,
    Group,
)
from platform_sdk.evaluation.report.content import kind_of, p_text
from platform_sdk.evaluation.seed_intervals import Estimator

MULTIPLE = 2.0  # ratios from here on are written as a multiple, not in percent


class SpentRow(NamedTuple):
    """A row of the cost table of two runs; ``change`` is the second relative to the first."""

    name: str
    first: str
    second: str
    change: str


class Cell(NamedTuple):
    """A value with its interval as text; ``kind`` is good, bad or even, by the interval's side of zero."""

    value: str
    interval: str = ""
    kind: str = "even"


class ScoreRow(NamedTuple):
    """A metric: the mean of each group, the differences of the others to the first, and their p values and counts."""

    name: str
    means: list[Cell]
    differences: list[Cell]
    p_values: list[str]
    questions: list[str]


def headlines(comparison: Comparison) -> list[str]:
    """Return a sentence for each group after the first: its difference to the first."""
    first, noun = comparison.groups[0], "the runs" if comparison.pair else "they"
    sentences = []
    for group in comparison.groups[1:]:
        change = comparison.difference(comparison.metric, group)
        cell = _difference_cell(comparison, change)
        verdict = "" if cell.kind != "even" else f" The interval contains 0: {noun} cannot be told apart."
        means = [_mean_cell(comparison, comparison.metric, each).value for each in (first, group)]
        estimator = f"Interval over {change.estimator}{_seeds(change, first, group)}."
        sentences.append(
            f"{name_of(comparison.metric)} {means[0]} for {first.name} and {means[1]} for {group.name}: a difference "
            f"of {cell.value} (95 %: {cell.interval}, p {p_text(change.p_value)}), "
            f"paired over {change.n} questions. {estimator}{verdict}"
        )
    return sentences


def _seeds(change: Difference, first: Group, second: Group) -> str:
    if change.estimator.one_seed:
        return ""
    if change.paired_seeds:
        shared = len(change.paired_seeds) < max(len(first.runs), len(second.runs))
        return f"; seeds {', '.join(change.paired_seeds)}{', which both have' if shared else ''}"
    return f"; {len(first.runs)} and {len(second.runs)} seeds"


def score_rows(comparison: Comparison) -> list[ScoreRow]:
    """Return a row for each metric of the last evaluations."""
    rows = []
    for metric in comparison.metrics:
        changes = [comparison.difference(metric, group) for group in comparison.groups[1:]]
        rows.append(
            ScoreRow(
                name=name_of(metric),
                means=[_mean_cell(comparison, metric, group) for group in comparison.groups],
                differences=[_difference_cell(comparison, change) for change in changes],
                p_values=[p_text(change.p_value).removeprefix("= ") for change in changes],
                questions=[str(change.n) for change in changes],
            )
        )
    return rows


def spent_rows(comparison: Comparison) -> list[SpentRow]:
    """Return the rows of the cost table of two runs."""
    first, second = (run.cost for run in comparison.runs)
    rows = [_spent_row("time", duration, first.seconds, second.seconds)]
    for name, field in (
        ("sampling", "sampling_seconds"),
        ("training", "training_seconds"),
        ("giving the engine the weights", "sync_seconds"),
        ("preparing the credit", "credit_seconds"),
    ):
        rows.append(_spent_row(f"· {name}", duration, getattr(first, field), getattr(second, field)))
    prepared = [run.preparation.seconds for run in comparison.runs]
    rows.append(_spent_row("· before the first evaluation", duration, *prepared))
    for name, field in (
        ("rollouts sampled", "rollouts"),
        ("trajectories trained on", "trajectories"),
        ("tokens sampled", "tokens_sampled"),
        ("tokens trained on", "tokens_trained"),
        *(
            [("tokens sampled or scored for the credit", "credit_tokens")]
            if first.credit_tokens or second.credit_tokens
            else []
        ),
        ("optimiser steps", "optimizer_steps"),
    ):
        rows.append(_spent_row(name, count_text, getattr(first, field), getattr(second, field)))
    return [row for row in rows if {row.first, row.second} != {duration(0.0)}]


def time_to_score(comparison: Comparison) -> str:
    """Return a sentence on the cost at which the groups first show the score; for two groups with the ratio."""
    reached, groups = comparison.reached, comparison.groups
    name = "The runs" if comparison.pair else "The groups' means"
    if reached is None:
        return (
            f"{name} have no {name_of(comparison.metric)} in common that is above the first one of all, so costs up to "
            "a score are not compared."
        )
    goal = f"{name_of(reached.metric)} {score_text(comparison, reached.metric, reached.score)}"
    shown = ", and by ".join(_first_shown(*pair) for pair in zip(groups, reached.groups, strict=True))
    ratios = [
        text
        for figure, less, unit in (("seconds", "less", "time"), ("trajectories", "fewer", "trajectories"))
        if len(groups) == 2 and (ratio := reached.ratio(figure)) is not None and (text := _ratio(ratio, less, unit))
    ]
    result = f" {groups[1].name} takes {' and '.join(ratios)}." if ratios else ""
    return f"{goal} is first shown by {shown}.{result}"


COST_COLUMNS = ("time", "rollouts", "trajectories", "tokens sampled", "tokens trained on", "optimiser steps")


def cost_cells(cost: Cost | None) -> list[str]:
    """Return a cost as text, one cell for each of ``COST_COLUMNS``; "never" in the first for no cost."""
    if cost is None:
        return ["never", *["–"] * (len(COST_COLUMNS) - 1)]
    counts = (cost.rollouts, cost.trajectories, cost.tokens_sampled, cost.tokens_trained, cost.optimizer_steps)
    return [duration(cost.seconds), *("–" if count is None else count_text(count) for count in counts)]


def cost_rows(comparison: Comparison) -> list[list[str]]:
    """Return the name of each group and its cost up to the score; empty without a score."""
    reached = comparison.reached
    if reached is None:
        return []
    return [
        [group.name, *cost_cells(each.cost if each else None)]
        for group, each in zip(comparison.groups, reached.groups, strict=True)
    ]


def cost_title(comparison: Comparison) -> str:
    """Return the title of the table of ``cost_rows``."""
    assert comparison.reached is not None
    score = score_text(comparison, comparison.reached.metric, comparison.reached.score)
    return f"Cost up to {name_of(comparison.reached.metric)} {score}"


def evaluation_cells(comparison: Comparison, run: ComparedRun) -> list[list[str]]:
    """Return the cells of each evaluation of a run: step, time, trajectories, rollouts, scores."""
    return [
        [
            str(each.step),
            duration(each.cost.seconds),
            count_text(each.cost.trajectories),
            count_text(each.cost.rollouts),
            *(
                score_text(comparison, metric, each.scores[metric].value) if metric in each.scores else "–"
                for metric in leading_metrics(comparison)
            ),
        ]
        for each in run.evaluations
    ]


def leading_metrics(comparison: Comparison) -> list[str]:
    """Return all metrics, the leading one first."""
    return list(dict.fromkeys((comparison.metric, *comparison.metrics)))


def score_text(comparison: Comparison, metric: str, value: float) -> str:
    """Return a score in the metric's unit."""
    return amount(value, count=metric in comparison.counts)


def count_text(value: float) -> str:
    """Return a number with thousands separators."""
    return f"{int(value):,}"


def _mean_cell(comparison: Comparison, metric: str, group: Group) -> Cell:
    spread = group.spreads[metric]
    interval = " to ".join(score_text(comparison, metric, end) for end in (spread.low, spread.high))
    return Cell(score_text(comparison, metric, spread.mean), _marked(comparison, interval, spread.estimator))


def _difference_cell(comparison: Comparison, change: Difference) -> Cell:
    value, low, high = (
        amount(each, count=change.metric in comparison.counts, signed=True)
        for each in (change.difference, change.low, change.high)
    )
    interval = _marked(comparison, f"{low} to {high}", change.estimator)
    return Cell(value, interval, kind_of(change.low, change.high))


def _marked(comparison: Comparison, interval: str, estimator: Estimator) -> str:
    """Return an interval, marked if it is of one seed among groups of several."""
    return f"{interval}, one seed" if estimator.one_seed and not comparison.pair else interval


def _first_shown(group: Group, reached: CostToScore | None) -> str:
    if reached is None:
        return f"{group.name} never"
    return f"{group.name} after {_cost_text(reached.cost)} ({reached.phase})"


def _cost_text(cost: Cost) -> str:
    return f"{duration(cost.seconds)} and {count_text(cost.trajectories)} trajectories"


def _ratio(ratio: float, less: str, unit: str) -> str:
    if ratio >= MULTIPLE:
        return f"{ratio:.3g} times the {unit}"
    percent = round(100 * abs(ratio - 1))
    if not percent:
        return f"as {'much' if less == 'less' else 'many'} {unit}"
    return f"{percent} % {less if ratio < 1 else 'more'} {unit}"


def _spent_row(name: str, write: Any, first: float | None, second: float | None) -> SpentRow:
    if first is None or second is None:
        return SpentRow(name, "–" if first is None else write(first), "–" if second is None else write(second), "–")
    if not first:
        change = "–"
    elif second / first >= MULTIPLE:
        change = f"× {second / first:.3g}"
    else:
        change = f"{100 * (second / first - 1):+.0f} %".replace("-", "−")
    return SpentRow(name, write(first), write(second), change)
