"""Collection of the facts of a run on this machine, from its journal, logs and figures. Nothing is changed."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from platform_sdk.diagnosis.facts import Delivery, Disk, Facts, Line, RunState, Selection, StepFacts, TrainingPoint
from platform_sdk.diagnosis.redaction import redacted
from platform_sdk.errors import UserError
from platform_sdk.execution.lock import is_locked
from platform_sdk.execution.runs import STEPS
from platform_sdk.files import read_model, read_object, read_regular, read_text, whole_lines
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.tracking.journal import FOLDER, STATE_EVENTS, Event, all_events, read, run_file
from platform_sdk.tracking.store import STATE_FILE, DeliveryState, stored_in

LINES = 80
PROGRESS = ("it/s]", "?it/s", "/s]", "rollout/s", "update/s", "tokens/s")
DELIVERY_ERROR = re.compile(r"(?:^error: |WARNING )(MLflow store .*?)(?:; trying again)?$")


def collect(run_dir: Path) -> Facts:
    """Return the facts of the run in ``run_dir``.

    Raises:
        UserError: the run has not started, or its journal is damaged.
    """
    active = is_locked(run_dir)  # before reading, so that the end of a run that just ended is read too
    states = [event for event in read(run_file(run_dir))[0] if event["event"] in STATE_EVENTS]
    if not states:
        raise UserError(f"{run_file(run_dir)}: does not record the start of a run; start it with hopforge run")
    last = states[-1]
    state: RunState = "RUNNING" if active else last["status"] if last["event"] == "ended" else "KILLED"
    end = last if last["event"] == "ended" and not active else {}
    began = max(event["time"] for event in states if event["event"] == "started")
    facts = Facts(
        run=str(run_dir),
        collected=stamp(time.time()),
        state=state,
        started=stamp(began / 1000),
        ended=stamp(end["time"] / 1000) if end else "",
        error=end.get("error", ""),
        oom_kills=end.get("oom_kills", 0),
        steps=tuple(_steps(run_dir, state, began / 1000, end)),
        training=tuple(_training(run_dir)),
        selections=tuple(_selections(run_dir)),
        delivery=_delivery(run_dir, state),
        disk=Disk(free_bytes=shutil.disk_usage(run_dir).free, writable=os.access(run_dir, os.W_OK)),
    )
    return redacted(facts)


def stamp(seconds: float) -> str:
    """Return a time in UTC, ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _steps(run_dir: Path, state: RunState, began: float, end: Event) -> Iterator[StepFacts]:
    """Yield the run's steps; of a run that did not finish, the last one with a log is the one that ended it."""
    path = run_dir / STEPS
    names = [str(name) for name in read_object(path).get("steps", ())] if path.is_file() else []
    logs = {name: RunDir(run_dir).log(name) for name in names}
    changed = {name: log.stat().st_mtime for name, log in logs.items() if log.is_file()}
    current = [name for name, at in changed.items() if at >= began - 1.0]
    newest = end.get("step") or (current[-1] if current else "")
    for name in names:
        reached = name in changed and (not newest or names.index(name) <= names.index(newest))
        found: RunState = "PENDING" if not reached else state if name == newest else "FINISHED"
        bad = found in ("FAILED", "KILLED", "RUNNING")
        yield StepFacts(
            name=name,
            state=found,
            ended=stamp(end["time"] / 1000) if end and bad else "",
            error=_step_error(run_dir, began, end) if found == "FAILED" else "",
            exit_code=(end.get("code") or None) if found == "FAILED" else None,
            log=f"{RunDir.logs}/{name}.log",
            lines=tuple(_lines(logs[name])) if bad else (),
            changed=stamp(changed[name]) if reached else "",
        )


def _step_error(run_dir: Path, began: float, end: Event) -> str:
    """Return the error that the failed step's journal recorded since the run's start, or the run's own."""
    errors = [
        str(event["error"])
        for event in all_events(run_dir)
        if event["event"] == "ended" and "error" in event and "step" not in event and event["time"] >= began * 1000
    ]
    return errors[-1] if errors else str(end.get("error", ""))


def _lines(path: Path) -> list[Line]:
    """Return the last lines of a log without empty lines and progress bars."""
    if not path.is_file():
        return []
    text = read_regular(path).decode(errors="replace")
    numbered = ((number, line.rstrip().rsplit("\r", 1)[-1]) for number, line in enumerate(text.split("\n"), start=1))
    kept = [Line(number=number, text=line) for number, line in numbered if line and not _is_progress(line)]
    return kept[-LINES:]


def _is_progress(line: str) -> bool:
    return any(mark in line for mark in PROGRESS)


def _training(run_dir: Path) -> Iterator[TrainingPoint]:
    """Yield the points of every training's curve."""
    for name, axis in ((PhaseDir.training_steps, "step"), (PhaseDir.updates, "update")):
        for path in sorted(run_dir.glob(f"*/{name}")):
            for point in _records(path):
                if isinstance(point.get(axis), int):
                    yield TrainingPoint(
                        phase=path.parent.name,
                        number=point[axis],
                        not_finite=tuple(sorted(_not_finite(point))),
                        equal_groups=_number(point.get("zero_variance")),
                        mean_reward=_number(point.get("mean_reward")),
                    )


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in whole_lines(path)[0]:
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record


def _not_finite(point: dict[str, Any]) -> Iterable[str]:
    flat = {**point, **(point.get("statistics") or {})}
    return [name for name, value in flat.items() if isinstance(value, float) and not math.isfinite(value)]


def _number(value: object) -> float | None:
    finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if finite else None  # type: ignore[arg-type]


def _selections(run_dir: Path) -> Iterator[Selection]:
    for path in sorted(run_dir.glob(f"*/{PhaseDir.figures}")):
        figures = read_object(path)
        if isinstance(figures.get("rollouts"), int) and isinstance(figures.get("selected"), int):
            yield Selection(
                phase=path.parent.name,
                rollouts=figures["rollouts"],
                accepted=figures["selected"],
                well_formed=_number(figures.get("well_formed")),
                threshold=_number(figures.get("threshold")),
            )


def _delivery(run_dir: Path, state: RunState) -> Delivery:
    path = run_dir / FOLDER / STATE_FILE
    try:
        delivered = read_model(path, DeliveryState).ended_in if path.is_file() else ""
    except UserError:
        delivered = ""
    log = RunDir(run_dir).follower_log
    complete = state != "RUNNING" and bool(delivered)
    errors = [] if complete or not log.is_file() else _delivery_errors(read_text(log).splitlines(), state)
    number, error = errors[-1] if errors else (0, "")
    return Delivery(store=stored_in(run_dir), complete=complete, error=error, log=RunDir.follower_log, line=number)


def _delivery_errors(lines: list[str], state: RunState) -> list[tuple[int, str]]:
    """Return the numbers and texts of the follower's errors; while it runs, only an error without a later line."""
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    found = [(number, match[1]) for number, line in numbered if (match := DELIVERY_ERROR.search(line))]
    if state == "RUNNING":
        return [(number, text) for number, text in found if number == numbered[-1][0]]
    return found
