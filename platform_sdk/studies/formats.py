"""Study tables as Markdown, CSV, LaTeX or HTML."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from platform_sdk.evaluation.cards.figures import amount, name_of
from platform_sdk.evaluation.comparison_text import COST_COLUMNS, cost_cells
from platform_sdk.evaluation.report.content import p_text
from platform_sdk.pages import render
from platform_sdk.studies.table import AVERAGE, Measurement, Row, StudyTable

NONE = "–"
_COSTS = [f"{title} to the baseline's score" for title in COST_COLUMNS]
_COST_FIELDS = ("seconds", "rollouts", "trajectories", "tokens_sampled", "tokens_trained", "optimizer_steps")
_OPENING = re.compile(r"[|\\]|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
_LATEX = str.maketrans({**{sign: f"\\{sign}" for sign in "&%$#_{}"}, "~": r"\textasciitilde{}",
                        "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "–": "--", "−": "$-$"})  # fmt: skip


def header(table: StudyTable) -> list[str]:
    """Return the titles of the columns."""
    titles = [column.title for columns in _columns(table).values() for column in columns]
    return [*table.axes, "seeds", "n", *titles, *(_COSTS if _has_costs(table) else ())]


def lines(table: StudyTable) -> list[list[str]]:
    """Return the rows as text: shares in percent, counts unscaled, published values as in the study's file."""
    columns = _columns(table)
    return [
        [
            *row.place,
            str(len(row.runs)) if row.runs else NONE,
            str(max((_questions(one) for one in row.metrics.values()), default=0) or NONE),
            *(column.text(one) or NONE for metric, one in row.metrics.items() for column in columns[metric]),
            *(_cost_cells(row) if _has_costs(table) else ()),
        ]
        for row in table.rows
    ]


def notes(table: StudyTable) -> list[str]:
    """Return notes on the numbers and on missing runs."""
    measured = [one for row in table.rows for one in row.metrics.values() if one.estimator]
    means = dict.fromkeys(str(one.estimator) for one in measured)
    pairs = dict.fromkeys(str(one.paired.estimator) for one in measured if one.paired)
    averaged = [one.paired for row in table.rows for one in row.metrics.values() if one.paired and not one.estimator]
    lines = [f"Scores in percent; 95 % intervals over {' or '.join(means)}." if means else "Scores in percent."]
    if any(one.estimator and one.estimator.one_seed for one in measured):
        lines.append("An interval marked (one seed) leaves out how much training varies from seed to seed.")
    if table.baseline:
        levels = ", ".join(f"{axis} {level}" for axis, level in table.baseline.items())
        over = f"; 95 % intervals over {' or '.join(pairs)}" if pairs else ""
        lines.append(f"Differences are to {levels}, paired by question{over}.")
    if averaged:
        lines.append(
            f"Rows `{AVERAGE}` have the mean of the differences over the levels of {table.average}; 95 % intervals "
            f"over {averaged[0].estimator}."
        )
    if _has_costs(table):
        lines.append(
            f"Costs are means over the seeds up to the first evaluation whose mean {name_of(table.metrics[0])} is at "
            "least the last one of the baseline; without evaluations and engine starts."
        )
    finished = any(row.runs for row in table.rows)
    if unmeasured := [name for name in table.metrics if finished and not _is_measured(table, name)]:
        lines.append(
            f"No finished run has {', '.join(unmeasured)}: check metrics in the study, or what its runs measure."
        )
    if table.missing:
        lines.append(f"{len(table.missing)} runs have not finished: {'; '.join(table.missing)}.")
    lines += [f"Warning: {report}." for report in table.altered]
    return lines


def markdown(table: StudyTable) -> str:
    head = header(table)
    sides = ["---"] * len(table.axes) + ["---:"] * (len(head) - len(table.axes))
    rows = [head, sides, *lines(table)]
    body = "\n".join("| " + " | ".join(map(_markdown, row)) + " |" for row in rows)
    return f"# {_markdown(table.title)}\n\n{body}\n\n" + "\n".join(map(_markdown, notes(table))) + "\n"


def _markdown(text: str) -> str:
    """Return a text on one line, with characters escaped that open a cell, HTML or an entity in Markdown."""
    return _OPENING.sub(r"\\\g<0>", " ".join(text.split()))


def latex(table: StudyTable) -> str:
    head = header(table)
    columns = "l" * len(table.axes) + "r" * (len(head) - len(table.axes))
    rows = [" & ".join(cell.translate(_LATEX) for cell in row) + r" \\" for row in [head, *lines(table)]]
    parts = [f"\\begin{{tabular}}{{{columns}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule",
             r"\end{tabular}"]  # fmt: skip
    comments = (" ".join(text.split()) for text in (table.title, *notes(table)))
    return "\n".join([*(f"% {comment}" for comment in comments), *parts]) + "\n"


def comma_separated(table: StudyTable) -> str:
    """Write a line per cell and metric with full precision, after a comment for each altered file."""
    out = io.StringIO()
    out.writelines(f"# Warning: {' '.join(report.split())}\n" for report in table.altered)
    writer = csv.writer(out, lineterminator="\n")
    paired = ("difference", "difference_low", "difference_high", "p_value", "difference_estimator")
    head = ("metric", "seeds", "n", "mean", "low", "high", "estimator", *paired, "published")
    writer.writerow([*table.axes, *head, "score_to_reach", *_COST_FIELDS])
    for row in table.rows:
        for metric, one in row.metrics.items():
            pair = one.paired
            tested = (pair.difference, pair.low, pair.high, pair.p_value, pair.estimator) if pair else ("",) * 5
            values = (_questions(one), one.mean, one.low, one.high, one.estimator)
            cost = row.cost.reached.cost if row.cost and row.cost.reached else None
            spent = [getattr(cost, field, "") for field in _COST_FIELDS]
            score = row.cost.score if row.cost else ""
            writer.writerow([*row.place, metric, len(row.runs), *values, *tested, one.published, score, *spent])
    return out.getvalue()


def page(table: StudyTable) -> str:
    return render(
        Path(__file__).with_name("table.html.j2"),
        ("export.js",),
        name=table.title,
        table=table,
        header=header(table),
        lines=lines(table),
        notes=notes(table),
    )


FORMATS: Mapping[str, Callable[[StudyTable], str]] = {
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
    "html": page,
}
SUFFIXES: Mapping[str, str] = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".html": "html"}


class _Column(NamedTuple):
    """A column of a metric; its text is empty without a value."""

    title: str
    text: Callable[[Measurement], str]


def _columns(table: StudyTable) -> dict[str, list[_Column]]:
    """Return the columns of each metric."""
    return {metric: _of_metric(table, metric) for metric in table.metrics}


def _has_costs(table: StudyTable) -> bool:
    """Return True if a cell spends anything up to the score of its baseline."""
    return any(row.cost and row.cost.reached and row.cost.reached.step for row in table.rows)


def _is_measured(table: StudyTable, metric: str) -> bool:
    return any(row.metrics[metric].n for row in table.rows)


def _questions(one: Measurement) -> int:
    """Return the number of questions of a cell's mean, or of an average of differences."""
    return one.n or (one.paired.n if one.paired else 0)


def _cost_cells(row: Row) -> list[str]:
    return cost_cells(row.cost.reached.cost if row.cost.reached else None) if row.cost else [NONE] * len(_COSTS)


def _of_metric(table: StudyTable, metric: str) -> list[_Column]:
    def written(value: float, signed: bool = False) -> str:
        return amount(value, count=metric in table.counts, signed=signed).replace("-", "−")

    def mean(one: Measurement) -> str:
        return "" if one.mean is None else written(one.mean)

    def interval(one: Measurement) -> str:
        if one.low is None or one.high is None or one.estimator is None:
            return ""
        return f"{written(one.low)} to {written(one.high)}{' (one seed)' if one.estimator.one_seed else ''}"

    def difference(one: Measurement) -> str:
        if (pair := one.paired) is None:
            return ""
        limits = f"{written(pair.low)} to {written(pair.high)}"
        mark = ", one seed" if pair.estimator.one_seed else ""
        return f"{written(pair.difference, True)} ({limits}{mark}), p {p_text(pair.p_value)}"

    measured = [row.metrics[metric] for row in table.rows]
    columns = [_Column(name_of(metric), mean), _Column("95 %", interval)]
    if any(len(one.values) > 1 for one in measured):
        columns.append(_Column("each seed", lambda one: ", ".join(written(value) for value in one.values)))
    if table.baseline:
        columns.append(_Column("difference (95 %), p", difference))
    if any(one.published is not None for one in measured):
        columns.append(_Column("published", lambda one: "" if one.published is None else f"{one.published:g}"))
    return columns
