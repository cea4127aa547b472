"""Ends of runs in the log."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.tracking import manifest
from platform_sdk.tracking.log.chain import RUN_ENDED, LogEntry, Statement, stated
from platform_sdk.tracking.log.client import AnyLog, open_log
from platform_sdk.tracking.seals import ENDED


def end_of(run_dir: Path, log: AnyLog) -> Statement | None:
    """Return the statement of a run's end; None if the run is under way or has no manifest.

    Raises:
        UserError: the manifest is broken.
    """
    entries = manifest.read(run_dir)
    if not entries or not entries[-1].event.startswith(ENDED):
        return None
    weights = [entry.digests["weights"] for entry in entries if "weights" in entry.digests]
    return stated(
        event=RUN_ENDED,
        run=log.named(run_dir.resolve()),
        start=entries[0].hash,
        head=entries[-1].head,
        status=entries[-1].event.removeprefix(ENDED),
        weights=weights[-1] if weights else "",
    )


def send_end(run_dir: Path) -> LogEntry | None:
    """Send a run's end to its log; None if the run is under way. A repeated call changes nothing.

    Raises:
        UserError: the manifest or the log is broken, or the service cannot be reached.
    """
    log = open_log(run_dir.resolve().parent)
    statement = end_of(run_dir, log)
    return None if statement is None else log.send(statement)
