"""``hopforge remove``: removal of a run, or of files of a run, on record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import say


def remove(
    run: Annotated[str, typer.Argument(help="A run directory, its name in --folder, or the run's id in MLflow.")],
    path: Annotated[
        str | None,
        typer.Argument(help="A file or folder in the run directory, e.g. iteration-01/rollouts.jsonl."),
    ] = None,
    *,
    whole: Annotated[bool, typer.Option("--whole", help="Remove the whole run directory.")] = False,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Reason for the removal.")],
    name: Annotated[str, typer.Option(help="Who removes (default: the user).")] = "",
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
) -> None:
    """Remove a finished run's files, or a whole run, so that hopforge verify does not name them as missing.

    The log first gets an entry with the name, the reason and, for files, their digest; without it nothing is removed.
    Only the run directory is changed, MLflow is not.
    """
    from platform_sdk.errors import UserError
    from platform_sdk.execution.lock import locked
    from platform_sdk.tracking.listing import find_run_dir, row_of
    from platform_sdk.tracking.removal import remove_files, remove_run

    if not run or path == "":
        raise UserError("remove: an argument is empty; name the run, and the file or folder to remove")
    if (path is None) != whole:
        raise UserError("remove: name either a file or folder of the run, or --whole for the whole run directory")
    run_dir = find_run_dir(run, folder)
    with locked(run_dir):
        if path is not None:
            entry = remove_files(run_dir, path, note, name=name)
        elif row_of(run_dir).status == "RUNNING":
            raise UserError(f"{run_dir}: the run has not ended; wait for its end or cancel it, then try again")
        else:
            entry = remove_run(run_dir, note, name=name)
    removed = run_dir if path is None else run_dir / entry.path
    say(f"{removed}: removed by {entry.who}, entry {entry.position} of the log")
