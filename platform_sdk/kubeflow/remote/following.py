"""Watching a run until its end, and cancelling a run with its jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.connection import Server, ServerUnavailable
from platform_sdk.kubeflow.remote.jobs import Jobs
from platform_sdk.kubeflow.remote.runs import Run
from platform_sdk.kubeflow.remote.state import RunState, look

LOOK_SECONDS = 5.0
PATIENCE = 1800.0  # how long the server may be away while a run is followed, in seconds
ENDING_SECONDS = 60.0  # how long to wait for a requested end


def follow(
    server: Server, run: Run, jobs: Jobs | None, show: Callable[[RunState], None],
    sleep: Callable[[float], None] = time.sleep,
) -> RunState:  # fmt: skip
    """Show a run's state every few seconds until its end; return the last state.

    Raises:
        UserError: the server refuses, or did not respond for half an hour.
    """
    last = RunState(run.run_id, run.name, "PENDING")
    away = 0.0
    while True:
        try:
            last = look(server, run, jobs, last)
            away = 0.0
        except ServerUnavailable as error:
            if away > PATIENCE:
                raise
            last, away = replace(last, unseen=str(error)), away + LOOK_SECONDS
        show(last)
        if last.ended:
            return last
        sleep(LOOK_SECONDS)


def cancel(
    server: Server, run: Run, jobs: Jobs, tell: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> list[str]:
    """Cancel a run and delete its jobs; return the names of the deleted jobs. Remaining jobs of an ended run go too.

    Jobs are deleted last, since a running step would create them again. If a job may not be deleted, the others still
    are.

    Raises:
        UserError: a server refuses or cannot be reached; the message names the jobs that may remain.
    """
    state = look(server, run, None)
    if state.ended:
        tell(f"run {run.name} has ended before: {state.state}")
    else:
        state = _terminate(server, run, sleep)
        late = "" if state.ended else (
            f" still, after {ENDING_SECONDS:g} s; if a step of it makes a job after this, repeat the command"
        )  # fmt: skip
        tell(f"run {run.name}: {state.state}{late}")
    deleted: list[str] = []
    left: list[str] = []
    for kind in jobs.kinds:
        try:
            found = kind.of(run.label)
        except UserError as error:
            left.append(f"{kind.name}s: {error}")
            continue
        for job in found:
            name = job["metadata"]["name"]
            try:
                kind.api.delete(name)
            except UserError as error:
                left.append(f"{kind.name} {name}: {error}")
            else:
                deleted.append(f"{kind.name} {name}")
    if left:
        done = f"\ndeleted: {', '.join(deleted)}" if deleted else ""
        raise UserError(
            "\n  ".join([f"jobs of run {run.name} may be left in {jobs.namespace}; repeat the command, or ask "
                         "an administrator to delete them:", *left]) + done
        )  # fmt: skip
    return deleted


def _terminate(server: Server, run: Run, sleep: Callable[[float], None]) -> RunState:
    """Request the end, and wait for it briefly."""
    try:
        server.ask(server.api.runs.run_service_terminate_run, run.run_id)
    except UserError:
        state = look(server, run, None)
        if not state.ended:  # otherwise it ended in between
            raise
        return state
    waited = 0.0
    while not (state := look(server, run, None)).ended and waited < ENDING_SECONDS:
        sleep(LOOK_SECONDS)
        waited += LOOK_SECONDS
    return state
