"""Logs of a local run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.config.source import suggestion
from platform_sdk.execution.local import log_lines
from platform_sdk.execution.lock import is_locked
from platform_sdk.run_dir import RunDir

PAUSE = 0.5


def print_logs(run_dir: Path, step: str | None, lines: int, follow: bool, print_line: Callable[[str], None]) -> None:
    """Print the last lines of every step's log in the order of the steps' start; with ``follow``, until the run ends.

    Raises:
        UserError: the run has ended without a log of the step.
    """
    offsets: dict[Path, int] = {}
    while True:
        active = follow and is_locked(run_dir)  # before reading, so that the last lines are read too
        logs = sorted(RunDir(run_dir).logs.glob("*.log"), key=lambda path: (path.stat().st_mtime_ns, path.name))
        names = [path.stem for path in logs]
        if not logs and not active:
            raise UserError(f"{run_dir}: no step has written a log yet; run hopforge watch for the state of the run")
        if step is not None and step not in names and not active:
            raise UserError(f"{run_dir}: step {step!r} has no log; {suggestion(step, names)}")
        for path in logs:
            if step in (None, path.stem):
                offsets[path] = _print_new(path, offsets.get(path), lines, step is None, print_line)
        if not active:
            return
        time.sleep(PAUSE)


def _print_new(path: Path, offset: int | None, lines: int, named: bool, print_line: Callable[[str], None]) -> int:
    """Print the lines after ``offset``, or the last ``lines`` if it is None; return the offset after them."""
    unread, end = log_lines(path, offset or 0)
    for line in unread if offset is not None else unread[-lines:]:
        print_line(f"[{path.stem}] {line}" if named else line)
    return end
