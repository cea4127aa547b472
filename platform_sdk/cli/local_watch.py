"""A run on this machine, watched from another terminal: read from its logs, shown as ``hopforge run`` shows it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from platform_sdk.cli.terminal import say
from platform_sdk.config.errors import UserError
from platform_sdk.execution.local import Listener, log_lines
from platform_sdk.execution.lock import is_locked
from platform_sdk.execution.runs import STEPS
from platform_sdk.files import read_object
from platform_sdk.tracking.journal import STATE_EVENTS, read, run_file

PAUSE = 0.5
State = Literal["FINISHED", "FAILED", "KILLED"]


class Teller(Listener):
    """Prints a line of JSON for each change of a step."""

    def started(self, task: str, ago: float = 0.0) -> None:
        say(json.dumps({"step": task, "state": "RUNNING"}))

    def finished(self, task: str, seconds: float) -> None:
        say(json.dumps({"step": task, "state": "SUCCEEDED", "seconds": round(seconds, 1)}))

    def failed(self, task: str, seconds: float) -> None:
        say(json.dumps({"step": task, "state": "FAILED", "seconds": round(seconds, 1)}))


def steps_of(run_dir: Path) -> list[str]:
    """Return the names of a run's steps in their order; wait for a run that is just starting.

    Raises:
        UserError: the run has not started, or an older hopforge made it.
    """
    path = run_dir / STEPS
    while not path.is_file() and is_locked(run_dir):
        time.sleep(PAUSE)
    if not path.is_file():
        raise UserError(f"{path}: there is no such file: the run has not started yet; start it with hopforge run")
    return [str(step) for step in read_object(path)["steps"]]


def began_at(run_dir: Path) -> float:
    """Return when the run was started last, in seconds since the epoch."""
    times = [event["time"] for event in read(run_file(run_dir))[0] if event["event"] == "started"]
    return times[-1] / 1000 if times else time.time()


def watch_local(run_dir: Path, watcher: Listener, *, pause: Callable[[float], None] = time.sleep) -> State:
    """Tell ``watcher`` of every step that is done, then of what the run does, until it ends; return how it ended."""
    steps, told, current, offset = steps_of(run_dir), 0, "", 0
    while True:
        going_on = is_locked(run_dir)  # asked first: what is written before the end is read once more
        since = began_at(run_dir)
        ends = _written(run_dir, steps, since)
        newest = max(ends, key=lambda step: (ends[step], steps.index(step)), default="")
        while newest and told < steps.index(newest):  # steps run in their order, so all before the newest are done
            if steps[told] != current:
                watcher.started(steps[told])
            watcher.finished(steps[told], _seconds(steps, told, ends, since))
            told, current = told + 1, ""
        if newest and newest != current and told == steps.index(newest):
            before = ends.get(steps[told - 1], since) if told else since
            watcher.started(newest, max(time.time() - before, 0.0))
            current, offset = newest, 0
        if current:
            lines, offset = log_lines(run_dir / "logs" / f"{current}.log", offset)
            for line in lines:
                watcher.said(current, line)
        if not going_on:
            state = _state(run_dir)
            if current and state != "KILLED":
                end = watcher.finished if state == "FINISHED" else watcher.failed
                end(current, _seconds(steps, told, ends, since))
            return state
        pause(PAUSE)


def _written(run_dir: Path, steps: list[str], since: float) -> dict[str, float]:
    """Return when each log was written last, of the steps that the run's last start has reached."""
    paths = {step: run_dir / "logs" / f"{step}.log" for step in steps}
    times = {step: path.stat().st_mtime for step, path in paths.items() if path.is_file()}
    return {step: at for step, at in times.items() if at >= since - 1.0}


def _seconds(steps: list[str], place: int, ends: dict[str, float], since: float) -> float:
    """Return how long a step took: from the last line of the one before to its own."""
    before = ends.get(steps[place - 1], since) if place else since
    return max(ends.get(steps[place], before) - before, 0.0)


def _state(run_dir: Path) -> State:
    states = [event for event in read(run_file(run_dir))[0] if event["event"] in STATE_EVENTS]
    status = states[-1].get("status") if states else None
    return status if status in ("FINISHED", "FAILED") else "KILLED"
