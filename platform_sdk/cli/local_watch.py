"""Progress of a local run in another terminal, read from its logs and shown as by ``hopforge run``."""

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
from platform_sdk.run_dir import RunDir
from platform_sdk.tracking.journal import STATE_EVENTS, read, run_file

PAUSE = 0.5
State = Literal["FINISHED", "FAILED", "KILLED"]


class JsonListener(Listener):
    """Listener that prints a line of JSON for each change of a step."""

    def started(self, task: str, ago: float = 0.0) -> None:
        say(json.dumps({"step": task, "state": "RUNNING"}))

    def finished(self, task: str, seconds: float) -> None:
        say(json.dumps({"step": task, "state": "SUCCEEDED", "seconds": round(seconds, 1)}))

    def failed(self, task: str, seconds: float) -> None:
        say(json.dumps({"step": task, "state": "FAILED", "seconds": round(seconds, 1)}))


def steps_of(run_dir: Path) -> list[str]:
    """Return the names of a run's steps in order; wait for a run that is starting.

    Raises:
        UserError: the run has not started.
    """
    path = run_dir / STEPS
    while not path.is_file() and is_locked(run_dir):
        time.sleep(PAUSE)
    if not path.is_file():
        raise UserError(f"{path}: no such file, since the run has not started; start it with hopforge run")
    return [str(step) for step in read_object(path)["steps"]]


def began_at(run_dir: Path) -> float:
    """Return the time of the run's last start, in seconds since the epoch."""
    times = [event["time"] for event in read(run_file(run_dir))[0] if event["event"] == "started"]
    return times[-1] / 1000 if times else time.time()


def watch_local(run_dir: Path, watcher: Listener, *, pause: Callable[[float], None] = time.sleep) -> State:
    """Report finished steps and further progress to ``watcher`` until the run ends; return its final state."""
    steps, done, current, offset = steps_of(run_dir), 0, "", 0
    while True:
        active = is_locked(run_dir)  # before reading, so that the last lines are read too
        since = began_at(run_dir)
        ends = _written(run_dir, steps, since)
        newest = max(ends, key=lambda step: (ends[step], steps.index(step)), default="")
        while newest and done < steps.index(newest):  # steps run in order, so all before the newest are done
            if steps[done] != current:
                watcher.started(steps[done])
            watcher.finished(steps[done], _seconds(steps, done, ends, since))
            done, current = done + 1, ""
        if newest and newest != current and done == steps.index(newest):
            before = ends.get(steps[done - 1], since) if done else since
            watcher.started(newest, max(time.time() - before, 0.0))
            current, offset = newest, 0
        if current:
            lines, offset = log_lines(RunDir(run_dir).log(current), offset)
            for line in lines:
                watcher.said(current, line)
        if not active:
            state = _state(run_dir)
            if current and state != "KILLED":
                end = watcher.finished if state == "FINISHED" else watcher.failed
                end(current, _seconds(steps, done, ends, since))
            return state
        pause(PAUSE)


def _written(run_dir: Path, steps: list[str], since: float) -> dict[str, float]:
    """Return the last modification time of each log written since the run's last start."""
    paths = {step: RunDir(run_dir).log(step) for step in steps}
    times = {step: path.stat().st_mtime for step, path in paths.items() if path.is_file()}
    return {step: modified for step, modified in times.items() if modified >= since - 1.0}


def _seconds(steps: list[str], index: int, ends: dict[str, float], since: float) -> float:
    """Return the duration of a step: from the last line of the previous step to its own last line."""
    before = ends.get(steps[index - 1], since) if index else since
    return max(ends.get(steps[index], before) - before, 0.0)


def _state(run_dir: Path) -> State:
    states = [event for event in read(run_file(run_dir))[0] if event["event"] in STATE_EVENTS]
    status = states[-1].get("status") if states else None
    return status if status in ("FINISHED", "FAILED") else "KILLED"
