"""``hopforge compare``: two runs side by side, in the terminal, as JSON, or as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import say

if TYPE_CHECKING:
    from platform_sdk.evaluation.compare import Comparison

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or the id of its run in MLflow.")]


def register(app: typer.Typer) -> None:
    app.command("compare")(compare)


def compare(
    first: RunArgument,
    second: RunArgument,
    metric: Annotated[str, typer.Option(help="Whose curves say where a score is reached.")] = "em",
    score: Annotated[
        float | None,
        typer.Option(help="That score, as the tables show it (percent); the highest that both reach if not given."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write one HTML page, with curves.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    folder: Annotated[Path, typer.Option(help="The folder that holds the run directories.")] = RUNS,
) -> None:
    """Compare two runs on the same questions: time, trajectories, tokens, scores with paired intervals.

    Says where either first shows a score, and how much less time and how many fewer trajectories that took. Scores in
    the JSON are in 0..1.
    """
    from platform_sdk.evaluation.compare import compare as compare_runs
    from platform_sdk.tracking.listing import find_run_dir

    comparison = compare_runs(find_run_dir(first, folder), find_run_dir(second, folder), metric=metric, shown=score)
    if output is not None:
        from platform_sdk.evaluation.comparison import build_comparison
        from platform_sdk.files import write_text

        write_text(output, build_comparison(comparison))
    if as_json:
        typer.echo(comparison.model_dump_json(indent=1))
    else:
        _print_tables(comparison)
        if output is not None:
            say(output)


def _print_tables(comparison: Comparison) -> None:
    from rich.markup import escape
    from rich.table import Table

    from platform_sdk.cli.terminal import Terminal
    from platform_sdk.evaluation.comparison import score_rows, sentence, spent_rows

    console = Terminal(highlight=False)
    names = escape(comparison.first.name), escape(comparison.second.name)
    spent = Table(box=None, header_style="bold", pad_edge=False, title_justify="left")
    spent.add_column("spent")
    for name in (*names, "second to first"):
        spent.add_column(name, justify="right")
    for cost in spent_rows(comparison):
        spent.add_row(cost.name, cost.first, cost.second, cost.change)
    console.print(spent)
    scores = Table(box=None, header_style="bold", pad_edge=False)
    scores.add_column(f"\n{comparison.questions} questions")
    heads = [
        f"{name}\n{side.last.phase}" for name, side in zip(names, (comparison.first, comparison.second), strict=True)
    ]
    for name in (*heads, "second − first", "95 % interval", "p"):
        scores.add_column(name, justify="right", vertical="bottom")
    for row in score_rows(comparison):
        scores.add_row(escape(row.name), row.first, row.second, row.difference, row.interval, row.p)
    console.print(scores)
    console.print(f"\n{escape(sentence(comparison))}", soft_wrap=True)
    changed = len(comparison.recipes)
    console.print(f"The recipes differ in {changed} setting{'' if changed == 1 else 's'}.")
