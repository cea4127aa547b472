"""``hopforge log``: checkpoints of the project's log, and ends of runs that wait for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from platform_sdk.cli.application import Application
from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import say

log = Application(help="Keep checkpoints of the log of runs and approvals.", no_args_is_help=True)
FolderOption = Annotated[Path, typer.Option(help="Folder of the run directories.")]


@log.command("checkpoint")
def checkpoint(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write.")],
    folder: FolderOption = RUNS,
) -> None:
    """Write the log's current size and head to a file, to be kept where the log's owner cannot write.

    The log is the service in HOPFORGE_LOG, which signs checkpoints, or log.jsonl next to the store. hopforge verify
    --checkpoint FILE proves later that the log still begins with the same entries.
    """
    from platform_sdk.outputs import check_output, write_output
    from platform_sdk.tracking.log.client import open_log

    check_output(output)
    opened = open_log(folder)
    current = opened.checkpoint()
    write_output(output, current.model_dump_json(indent=1) + "\n")
    say(f"{output}: {current.size} entries of {opened.name}, head {current.head}")


@log.command("send")
def send(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Runs: directories or names in --folder.")],
    folder: FolderOption = RUNS,
) -> None:
    """Send the ends of runs to the log, e.g. after the log service was unreachable. Repeated ends change nothing."""
    from platform_sdk.errors import UserError
    from platform_sdk.tracking.listing import find_run_dir
    from platform_sdk.tracking.log.ends import send_end

    for run in runs:
        entry = send_end(find_run_dir(run, folder))
        if entry is None:
            raise UserError(f"{run}: has not ended; repeat its hopforge run to resume it, then try again")
        say(f"{run}: entry {entry.position}")
