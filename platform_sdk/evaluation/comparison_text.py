"""Sentences and table rows of a comparison of runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from platform_sdk.evaluation.cards.figures import amount, duration, name_of
from platform_sdk.evaluation.comparison_records import ComparedRun, Comparison, Cost, Difference, Evaluation, Group
from platform_sdk.evaluation.report.content import kind_of, p_text

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
        verdict = "" if cell.kind != "even" else f" The interval holds 0: {noun} cannot be told apart."
        means = [_mean_cell(comparison, comparison.metric, each).value for each in (first, group)]
        seeds = "" if comparison.pair else f", {len(first.runs)} and {len(group.runs)} seeds"
        sentences.append(
            f"{name_of(comparison.metric)} {means[0]} for {first.name} and {means[1]} for {group.name}: a difference "
            f"of {cell.value} (95 %: {cell.interval}, p {p_text(change.p_value)}), "
            f"paired over {change.n} questions{seeds}.{verdict}"
        )
    return sentences


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
    ):
        rows.append(_spent_row(f"· {name}", duration, getattr(first, field), getattr(second, field)))
    prepared = [run.preparation.seconds for run in comparison.runs]
    rows.append(_spent_row("· before the first evaluation", duration, *prepared))
    for name, field in (
        ("rollouts sampled", "rollouts"),
        ("trajectories trained on", "trajectories"),
        ("tokens sampled", "tokens_sampled"),
        ("tokens trained on", "tokens_trained"),
    ):
        rows.append(_spent_row(name, count_text, getattr(first, field), getattr(second, field)))
    return [row for row in rows if {row.first, row.second} != {duration(0.0)}]


def time_to_score(comparison: Comparison) -> str:
    """Return a sentence: the costs at which two runs first show the score, and their ratio."""
    reached = comparison.reached
    if reached is None:
        return (
            f"The runs have no {name_of(comparison.metric)} in common that is above the first one of both, so time and "
            "trajectories to a score are not compared."
        )
    goal = f"{name_of(reached.metric)} {score_text(comparison, reached.metric, reached.score)}"
    first, second = comparison.groups
    shown = f"{_first_shown(first, reached.first)}, and by {_first_shown(second, reached.second)}"
    ratios = [
        text
        for ratio, less, unit in ((reached.time, "less", "time"), (reached.trajectories, "fewer", "trajectories"))
        if ratio is not None and (text := _ratio(ratio, less, unit))
    ]
    result = f" {second.name} takes {' and '.join(ratios)}." if ratios else ""
    return f"{goal} is first shown by {shown}.{result}"


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
    ends = [] if spread.low is None or spread.high is None else [spread.low, spread.high]
    interval = " to ".join(score_text(comparison, metric, end) for end in ends)
    return Cell(score_text(comparison, metric, spread.mean), interval)


def _difference_cell(comparison: Comparison, change: Difference) -> Cell:
    value, low, high = (
        amount(each, count=change.metric in comparison.counts, signed=True)
        for each in (change.difference, change.low, change.high)
    )
    return Cell(value, f"{low} to {high}", kind_of(change.low, change.high))


def _first_shown(group: Group, evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return f"{group.name} never"
    return f"{group.name} after {_cost_text(evaluation.cost)} ({evaluation.phase})"


def _cost_text(cost: Cost) -> str:
    return f"{duration(cost.seconds)} and {count_text(cost.trajectories)} trajectories"


def _ratio(ratio: float, less: str, unit: str) -> str:
    if ratio >= MULTIPLE:
        return f"{ratio:.3g} times the {unit}"
    percent = round(100 * abs(ratio - 1))
    if not percent:
        return f"as {'much' if less == 'less' else 'many'} {unit}"
    return f"{percent} % {less if ratio < 1 else 'more'} {unit}"


def _spent_row(name: str, write: Any, first: float, second: float) -> SpentRow:
    if not first:
        change = "–"
    elif second / first >= MULTIPLE:
        change = f"× {second / first:.3g}"
    else:
        change = f"{100 * (second / first - 1):+.0f} %".replace("-", "−")
    return SpentRow(name, write(first), write(second), change)
