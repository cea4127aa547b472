"""``hopforge runs``: the runs there are; ``hopforge report``: a run as one HTML page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from platform_sdk.cli.terminal import Terminal, say
from platform_sdk.config.errors import UserError

RUNS = Path("runs")


def runs(
    folder: Annotated[Path, typer.Argument(help="The folder that holds the run directories.")] = RUNS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the runs: when, how they ended, exact match and F1 before and after.

    The store is FOLDER/mlflow.db, unless MLFLOW_TRACKING_URI names another.
    """
    from platform_sdk.tracking.listing import list_runs, listing_uri
    from platform_sdk.tracking.seals import check

    rows = list_runs(listing_uri(folder))
    for row in rows:
        if Path(row.run_dir).is_dir():
            try:
                check(Path(row.run_dir), external=False)
            except UserError as error:
                say(f"warning: run {row.name}: {error}", err=True)
    if as_json:
        typer.echo(json.dumps([row.model_dump() for row in rows], indent=1))
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("run", "recipe", "started (UTC)", "status"):
        table.add_column(title)
    for title in ("iterations", "EM", "F1"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("weights", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            row.recipe,
            row.started.removesuffix("+00:00").replace("T", " "),
            row.status.lower(),
            "–" if row.iterations is None else str(row.iterations),
            _change(row.em_start, row.em_final),
            _change(row.f1_start, row.f1_final),
            (row.weights or "–")[:12],
        )
    # A pipe has no width of its own, and wrapped lines are useless to its reader.
    Terminal(width=None if sys.stdout.isatty() else 200).print(table)


def report(
    run: Annotated[str, typer.Argument(help="A run directory, its name in --folder, or the run's id in MLflow.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where to write the page.")] = None,
    folder: Annotated[Path, typer.Option(help="The folder that holds the run directories.")] = RUNS,
) -> None:
    """Write a run's report: one HTML page that needs nothing else."""
    from platform_sdk.evaluation.report import build_report
    from platform_sdk.files import write_text
    from platform_sdk.tracking.listing import find_run_dir
    from platform_sdk.tracking.seals import check

    run_dir = find_run_dir(run, folder)
    path = output or run_dir / "report.html"
    write_text(path, build_report(run_dir))
    say(path)
    check(run_dir, external=False)  # a manifest that does not hold is said on the page, and here as well


def _change(start: float | None, final: float | None) -> str:
    if start is None and final is None:
        return "–"
    return " → ".join("–" if score is None else f"{100 * score:.1f}" for score in (start, final))
