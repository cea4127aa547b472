"""Journal of a run's events for MLflow: ``tracking/run.jsonl`` and one file for each step.

Importing mlflow and opening its store takes seconds, and every step is a separate process. So steps only append lines
to the journal (a millisecond), and one process delivers them (``delivery.py``). A kill loses no written event, an
unreachable server delays no step, and events of a repeated step are deduplicated.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.credentials import strip_credentials
from platform_sdk.files import REMEDY, append_line, drop_torn_line, parse_object, whole_lines
from platform_sdk.run_dir import RunDir

FOLDER = RunDir.tracking
RUN = "run"
DIGEST = "hopforge.digest."
"""Prefix of the names of digest tags."""
STEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
Event = dict[str, Any]

# Events that are recorded every time; all others are deduplicated.
STATE_EVENTS = frozenset({"started", "ended"})
METRICS = b'{"event": "metrics"'
"""Start of the lines of metrics (``event_line``)."""


class Journal:
    """An append-only file of events with one writer. ``time`` is in milliseconds since the epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        drop_torn_line(path)
        self._latest: dict[str, str] = {}
        for event in read(path)[0]:
            self._latest |= _values(event)

    def append(self, event: str, *, at: int | None = None, **fields: Any) -> None:
        """Append an event unless it is already recorded; ``at`` is its time, by default now.

        Tags, files and the note may return to an earlier value, so they are only compared with their latest value.
        """
        body = strip_credentials({"event": event, **fields})
        values = _values(body)
        if event not in STATE_EVENTS and values.items() <= self._latest.items():
            return
        append_line(self.path, event_line(time.time_ns() // 1_000_000 if at is None else at, body))
        self._latest |= values


def event_line(at: int, body: Event) -> str:
    """Return the line of an event, without the line's end."""
    return json.dumps({"time": at, **body}, sort_keys=True)


def read(path: Path, offset: int = 0) -> tuple[list[Event], int]:
    """Return the complete events of ``path`` from byte ``offset`` on, and the offset after them.

    Raises:
        UserError: a complete line is not an event.
    """
    lines, end = whole_lines(path, offset)
    return [_event(line, _where(path, offset, number)) for number, line in enumerate(lines, start=1)], end


def _where(path: Path, offset: int, number: int) -> str:
    """Return the place of a line, counted from ``offset``, for errors."""
    return f"{path}:{number}" if not offset else f"{path}: line {number} after byte {offset}"


def _event(line: bytes, where: str) -> Event:
    try:
        event = parse_object(line.decode(), where)
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: is not UTF-8, so it was altered; {REMEDY}") from error
    if not isinstance(event.get("event"), str) or not isinstance(event.get("time"), int):
        raise UserError(f"{where}: is not an event of a run, so it was altered; {REMEDY}")
    return event


def run_file(run_dir: Path) -> Path:
    return RunDir(run_dir).run_journal


def step_file(run_dir: Path, step: str) -> Path:
    """Return the journal of a step.

    Raises:
        UserError: ``step`` cannot be a file name.
    """
    if not STEP_NAME.fullmatch(step):
        raise UserError(f"step name {step!r}: it may only contain letters, digits, '.', '_' and '-'")
    return RunDir(run_dir).step_journals / f"{step}.jsonl"


def journals(run_dir: Path) -> dict[str, Path]:
    """Return the journals of the run and its steps, by their names in ``Deliveries``."""
    steps = sorted(RunDir(run_dir).step_journals.glob("*.jsonl"))
    return {RUN: run_file(run_dir)} | {f"steps/{path.name.removesuffix('.jsonl')}": path for path in steps}


def relocated(run_dir: Path, recorded: str) -> Path:
    """Return the current location of a recorded path, since the run directory may have been moved or copied."""
    written = Path(recorded)
    inside = (run_dir.joinpath(*written.parts[start:]) for start in range(1, len(written.parts)))
    return next((path for path in inside if path.exists()), written)


def end_at(run_dir: Path, offsets: Mapping[str, int]) -> bool:
    """Return True if the journals have no complete line after these offsets: a kill may leave a part of a line."""
    return all(whole_lines(path)[1] == offsets.get(key, 0) for key, path in journals(run_dir).items())


def all_events(run_dir: Path, *, metrics: bool = True) -> list[Event]:
    """Return the events of the run and its steps in the order of recording.

    Args:
        metrics: Include metrics. Almost all events are metrics, so reading the others alone is many times faster.
    """
    events = (
        _event(line, f"{path}:{number}")
        for path in journals(run_dir).values()
        for number, line in enumerate(whole_lines(path)[0], start=1)
        if metrics or not line.startswith(METRICS)
    )
    return sorted(events, key=lambda event: int(event["time"]))


def _values(event: Event) -> dict[str, str]:
    """Return what an event sets, by what a later event may set again; for most events, itself."""
    body = json.dumps({key: value for key, value in event.items() if key != "time"}, sort_keys=True)
    match event:
        case {"event": "tags", "tags": dict(tags)}:
            return {json.dumps(["tag", name]): json.dumps(value) for name, value in tags.items()}
        case {"event": "artifact", "path": str(path)}:
            return {json.dumps(["artifact", path]): body}
        case {"event": "note"}:
            return {json.dumps(["note"]): body}
    return {body: body}
