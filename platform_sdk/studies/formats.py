"""A study's table as Markdown, CSV, LaTeX or one HTML page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path

from platform_sdk.evaluation.report.content import amount, p_text
from platform_sdk.evaluation.report.curves import name_of
from platform_sdk.pages import render
from platform_sdk.studies.table import Measurement, StudyTable

NONE = "–"
_LATEX = str.maketrans({**{sign: f"\\{sign}" for sign in "&%$#_{}"}, "~": r"\textasciitilde{}",
                        "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "–": "--", "−": "$-$"})  # fmt: skip


def header(table: StudyTable) -> list[str]:
    """Return the titles of the columns."""
    compared = bool(table.baseline)
    of_metric = [
        title
        for metric in table.metrics
        for title in (name_of(metric), "95 %", *(["difference, p"] if compared else []), "published")
    ]
    return [*table.axes, "seeds", "n", *of_metric]


def lines(table: StudyTable) -> list[list[str]]:
    """Return the rows as text: shares in percent, counts as they are, published values as printed."""
    return [
        [
            *row.place,
            str(len(row.runs)) if row.runs else NONE,
            str(max((one.n for one in row.metrics.values()), default=0) or NONE),
            *(text for metric, one in row.metrics.items() for text in _cells(table, metric, one)),
        ]
        for row in table.rows
    ]


def notes(table: StudyTable) -> list[str]:
    """Say how to read the numbers, and which runs are missing."""
    said = [
        "Scores in percent; 95 % intervals are Student's over seeds, of a single seed the bootstrap's over questions."
    ]
    if table.baseline:
        levels = ", ".join(f"{axis} {level}" for axis, level in table.baseline.items())
        said.append(f"Differences are to {levels}, paired by question.")
    if table.missing:
        said.append(f"{len(table.missing)} runs have not finished: {'; '.join(table.missing)}.")
    return said


def markdown(table: StudyTable) -> str:
    head = header(table)
    sides = ["---"] * len(table.axes) + ["---:"] * (len(head) - len(table.axes))
    rows = [head, sides, *lines(table)]
    body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return f"# {table.title}\n\n{body}\n\n" + "\n".join(notes(table)) + "\n"


def latex(table: StudyTable) -> str:
    head = header(table)
    columns = "l" * len(table.axes) + "r" * (len(head) - len(table.axes))
    rows = [" & ".join(cell.translate(_LATEX) for cell in row) + r" \\" for row in [head, *lines(table)]]
    parts = [f"\\begin{{tabular}}{{{columns}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule",
             r"\end{tabular}"]  # fmt: skip
    return "\n".join([*(f"% {line}" for line in (table.title, *notes(table))), *parts]) + "\n"


def comma_separated(table: StudyTable) -> str:
    """Write a line for each cell and metric, with numbers at full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    paired = ("difference", "difference_low", "difference_high", "p_value")
    writer.writerow([*table.axes, "metric", "seeds", "n", "mean", "low", "high", *paired, "published"])
    for row in table.rows:
        for metric, one in row.metrics.items():
            pair = one.paired
            tested = (pair.difference, pair.low, pair.high, pair.p_value) if pair else ("",) * 4
            writer.writerow(
                [*row.place, metric, len(row.runs), one.n, one.mean, one.low, one.high, *tested, one.published]
            )
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


def _cells(table: StudyTable, metric: str, one: Measurement) -> list[str]:
    def written(value: float, signed: bool = False) -> str:
        return amount(value, count=metric in table.counts, signed=signed)

    found = [NONE, NONE]
    if one.mean is not None and one.low is not None and one.high is not None:
        found = [written(one.mean), f"{written(one.low)} to {written(one.high)}"]
    if table.baseline:
        pair = one.paired
        found.append(NONE if pair is None else f"{written(pair.difference, True)}, p {p_text(pair.p_value)}")
    return [*found, NONE if one.published is None else f"{one.published:g}"]
