"""``hopforge compare``: comparison of runs in the terminal, as JSON, or as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.altered import AlteredOption, warn
from platform_sdk.cli.output import say_json
from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import Terminal, say
from platform_sdk.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.evaluation.comparison_records import Comparison


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="Run directories, their names in --folder, or ids of runs in MLflow."),
    ],
    metric: Annotated[str, typer.Option(help="Metric that leads the comparison.")] = "em",
    score: Annotated[
        float | None,
        typer.Option(help="Score to reach, in percent (default: the highest that the means of all groups reach)."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write an HTML page with curves.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    altered: AlteredOption = False,
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
) -> None:
    """Compare runs on the same questions: scores with paired intervals, and the cost until each reaches a score.

    The cost is time, rollouts, trajectories, tokens and optimiser steps. With three or more runs, those that differ
    only in the seed form a group: means and differences with intervals over seeds and questions, paired by the seeds
    that two groups share. An interval of one seed is over questions alone, and is marked. Every difference names its
    estimator. Scores in the JSON are in 0..1.
    """
    from platform_sdk.evaluation.comparison import compare as compare_runs
    from platform_sdk.evaluation.comparison_page import build_comparison
    from platform_sdk.outputs import check_output, write_output
    from platform_sdk.tracking.listing import find_run_dir

    if output is not None:
        check_output(output)
    run_dirs = [find_run_dir(run, folder) for run in runs]
    if len(run_dirs) < 2:
        raise UserError("compare: needs at least two runs")
    comparison = compare_runs(run_dirs, metric=metric, shown=score, altered=altered)
    warn(comparison.altered)
    if output is not None:
        write_output(output, build_comparison(comparison))
    if as_json:
        say_json(comparison, indent=1)
        return
    if comparison.pair:
        _print_pair(comparison)
    else:
        _print_groups(comparison)
    if output is not None:
        say(output)


def _print_costs(comparison: Comparison, console: Terminal) -> None:
    from rich.markup import escape
    from rich.table import Table

    from platform_sdk.evaluation.comparison_text import COST_COLUMNS, cost_rows, cost_title, time_to_score

    if rows := cost_rows(comparison):
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column(cost_title(comparison), overflow="fold")
        for title in COST_COLUMNS:
            table.add_column(title, justify="right")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print()
        console.print(table)
    console.print(escape(time_to_score(comparison)), soft_wrap=True)


def _print_groups(comparison: Comparison) -> None:
    from rich.markup import escape
    from rich.table import Table

    from platform_sdk.evaluation.comparison_text import headlines, score_rows

    console = Terminal(highlight=False)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(f"{comparison.questions} questions", overflow="fold")
    for group in comparison.groups:
        table.add_column(f"{escape(group.name)}\n{len(group.runs)} seeds", justify="right", overflow="fold")
    for group in comparison.groups[1:]:
        table.add_column(f"difference of\n{escape(group.name)}", justify="right", overflow="fold")
    for row in score_rows(comparison):
        cells = (*row.means, *row.differences)
        table.add_row(escape(row.name), *(f"{cell.value}\n{cell.interval}".strip() for cell in cells))
    console.print(table)
    for headline in headlines(comparison):
        console.print(f"\n{escape(headline)}", soft_wrap=True)
    _print_costs(comparison, console)
    changed = ", ".join(name for name, _ in comparison.recipes)
    console.print(escape(f"The recipes differ in {changed or 'nothing but the seed'}."), soft_wrap=True)


def _print_pair(comparison: Comparison) -> None:
    from rich.markup import escape
    from rich.table import Table

    from platform_sdk.evaluation.comparison_text import headlines, score_rows, spent_rows

    console = Terminal(highlight=False)
    names = [escape(group.name) for group in comparison.groups]
    spent = Table(box=None, header_style="bold", pad_edge=False, title_justify="left")
    spent.add_column("spent", overflow="fold")
    for name in (*names, "second to first"):
        spent.add_column(name, justify="right", overflow="fold")
    for cost in spent_rows(comparison):
        spent.add_row(*cost)
    console.print(spent)
    scores = Table(box=None, header_style="bold", pad_edge=False)
    scores.add_column(f"\n{comparison.questions} questions", overflow="fold")
    heads = [f"{name}\n{run.last.phase}" for name, run in zip(names, comparison.runs, strict=True)]
    for name in (*heads, "second − first", "95 % interval", "p"):
        scores.add_column(name, justify="right", vertical="bottom", overflow="fold")
    for row in score_rows(comparison):
        [difference] = row.differences
        means = (cell.value for cell in row.means)
        scores.add_row(escape(row.name), *means, difference.value, difference.interval, *row.p_values)
    console.print(scores)
    for line in headlines(comparison):
        console.print(f"\n{escape(line)}", soft_wrap=True)
    _print_costs(comparison, console)
    changed = ", ".join(name for name, _ in comparison.recipes)
    recipes = f"The recipes differ in {changed}." if changed else "The recipes are equal."
    console.print(escape(recipes), soft_wrap=True)
