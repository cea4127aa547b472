"""``hopforge runs``: list of runs; ``hopforge report``: a run as an HTML page."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.altered import AlteredOption, warn
from platform_sdk.cli.output import say, say_json
from platform_sdk.config.errors import UserError
from platform_sdk.run_dir import RunDir

if TYPE_CHECKING:
    from platform_sdk.evaluation.report.content import Verified

RUNS = Path("runs")


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder of the run directories.")] = RUNS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List runs with start time, status, and exact match and F1 before and after training.

    The runs are the run directories in FOLDER. If MLFLOW_TRACKING_URI names an MLflow server (http://… or https://…),
    its newest hundred runs are listed instead.
    """
    from platform_sdk.tracking.listing import row_of, run_dirs, server_rows, tracking_server

    server = tracking_server()
    if server is not None:
        rows = server_rows(server)
        for row in rows:
            _warn_if_altered(Path(row.run_dir))
    else:
        rows = []
        for run_dir in run_dirs(folder):
            _warn_if_altered(run_dir)
            try:
                rows.append(row_of(run_dir))
            except UserError as error:
                say(f"warning: run {run_dir.name} is not listed: {error}", err=True)
        rows.sort(key=lambda row: row.started, reverse=True)
    if as_json:
        say_json([asdict(row) for row in rows], indent=1)
        return
    from rich.markup import escape
    from rich.table import Table

    from platform_sdk.cli.terminal import Terminal

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("run", "recipe", "started (UTC)", "status"):
        table.add_column(title)
    for title in ("iterations", "EM", "F1"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("weights", no_wrap=True)
    for row in rows:
        table.add_row(
            escape(row.name),
            escape(row.recipe),
            row.started.removesuffix("+00:00").replace("T", " "),
            row.status.lower(),
            "–" if row.iterations is None else str(row.iterations),
            _change(row.em_start, row.em_final),
            _change(row.f1_start, row.f1_final),
            (row.weights or "–")[:12],
        )
    # A pipe has no width, and its reader cannot use wrapped lines.
    Terminal().print(table)


def report(
    run: Annotated[str, typer.Argument(help="A run directory, its name in --folder, or the run's id in MLflow.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The HTML file to write (default: report.html in the run directory)."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
    altered: AlteredOption = False,
    full: Annotated[bool, typer.Option("--full-check", help="Verify every file, including unchanged ones.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Show the outcome of hopforge verify and its time (needs -o).")
    ] = False,
) -> None:
    """Write a run's report: one self-contained HTML page.

    A finished run's page is sealed; write a changed page to another file with -o.
    """
    from platform_sdk.evaluation.report import build_report
    from platform_sdk.outputs import check_output, write_output
    from platform_sdk.tracking.listing import find_run_dir
    from platform_sdk.tracking.opened import open_run

    if output is not None:
        check_output(output)
    elif verify:
        raise UserError("--verify needs another file than the run's own page; name it with -o")
    run_dir = find_run_dir(run, folder)
    opened = open_run(run_dir, altered=altered, full=full)
    warn(opened.altered)
    path = output or RunDir(run_dir).report
    page = build_report(run_dir, altered=altered, verified=_verified(run_dir) if verify else None)
    sealed = opened.sealed_at_end(path.name) if output is None else ""
    if sealed and sealed != sha256(page.encode(errors="backslashreplace")).hexdigest():
        raise UserError(f"{path}: is sealed by the run, and the new page differs; write it to another file with -o")
    write_output(path, page)
    say(path)


def _verified(run_dir: Path) -> Verified:
    from platform_sdk.evaluation.report.content import Verified
    from platform_sdk.tracking.verify import verify_run

    return Verified(verify_run(run_dir), datetime.now(UTC))


def _warn_if_altered(run_dir: Path) -> None:
    """Warn if a file of a run on this machine was altered or removed; see ``open_run``."""
    from platform_sdk.tracking.opened import open_run

    if not run_dir.is_dir():
        return
    try:
        open_run(run_dir)
    except UserError as error:
        say(f"warning: run {run_dir.name}: {error}", err=True)


def _change(start: float | None, final: float | None) -> str:
    if start is None and final is None:
        return "–"
    return " → ".join("–" if score is None else f"{100 * score:.1f}" for score in (start, final))
