"""A run followed to its end, its logs read, and a run ended with its jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.connection import Server, Unreached
from platform_sdk.kubeflow.remote.runs import Jobs, Run, RunState, look
from platform_sdk.kubeflow.training_job.api import Unreachable
from platform_sdk.kubeflow.training_job.description import LABEL_STEP, LABEL_TASK

LOOK_SECONDS = 5.0
PATIENCE = 1800.0  # how long the server may be away while a run is followed, in seconds
ENDING_SECONDS = 60.0
STEP_CONTAINER = "main"  # as the workflow calls the container of a step


def follow(
    server: Server, run: Run, jobs: Jobs | None, show: Callable[[RunState], None],
    sleep: Callable[[float], None] = time.sleep,
) -> RunState:  # fmt: skip
    """Show how a run stands every few seconds until it has ended; give its last state.

    Raises:
        UserError: the server refuses, or stayed away for half an hour.
    """
    last = RunState(run.run_id, run.name, "PENDING")
    away = 0.0
    while True:
        try:
            last = look(server, run, jobs)
            away = 0.0
        except Unreached as error:
            if away > PATIENCE:
                raise
            last, away = replace(last, unseen=str(error)), away + LOOK_SECONDS
        show(last)
        if last.ended:
            return last
        sleep(LOOK_SECONDS)


@dataclass(frozen=True)
class Container:
    """A container whose log may be read."""

    step: str
    pod: str
    name: str


def containers(jobs: Jobs, run: Run, step: str | None) -> Iterator[Container]:
    """The containers of a run's steps, or of one step: those of the step's own pod, and those of its jobs' pods."""
    selector = f"pipeline/runid={run.run_id}" + (f",{LABEL_TASK}={step}" if step else "")
    for pod in jobs.pods(selector):
        task = pod["metadata"].get("labels", {}).get(LABEL_TASK)
        if task and not pod["metadata"].get("deletionTimestamp"):
            yield Container(task, pod["metadata"]["name"], STEP_CONTAINER)
    for _, api, job in jobs.of(run):
        labels = job["metadata"].get("labels", {})
        if step not in (None, labels.get(LABEL_TASK), labels.get(LABEL_STEP)):
            continue
        for pod in api.pods(job["metadata"]["name"]):
            spec = pod.get("spec", {})
            for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
                name = labels.get(LABEL_TASK) or labels.get(LABEL_STEP, "")
                yield Container(name, pod["metadata"]["name"], container["name"])


def cancel(
    server: Server, run: Run, jobs: Jobs, tell: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> list[str]:
    """End a run and delete its jobs; names those that were deleted. One that has ended loses only what is left of it.

    Jobs go last: a step that is still at work would make them anew.

    Raises:
        UserError: a server refuses or cannot be reached.
    """
    state = look(server, run, None)
    if state.ended:
        tell(f"run {run.name} has ended before: {state.state}")
    else:
        state = _terminate(server, run, sleep)
        tell(f"run {run.name}: {state.state}")
    try:
        deleted = []
        for kind, api, job in list(jobs.of(run)):
            api.delete(job["metadata"]["name"])
            deleted.append(f"{kind} {job['metadata']['name']}")
    except Unreachable as error:
        raise UserError(f"{error}; its jobs may still be there: repeat the command") from error
    return deleted


def _terminate(server: Server, run: Run, sleep: Callable[[float], None]) -> RunState:
    """Ask for the end, and wait a little for it."""
    try:
        server.ask(server.api.runs.run_service_terminate_run, run.run_id)
    except UserError:
        state = look(server, run, None)
        if not state.ended:  # else it ended by itself in between
            raise
        return state
    waited = 0.0
    while not (state := look(server, run, None)).ended and waited < ENDING_SECONDS:
        sleep(LOOK_SECONDS)
        waited += LOOK_SECONDS
    return state


def read_log(jobs: Jobs, container: Container, lines: int, *, follow: bool) -> Iterator[str]:
    """The last lines of a container's log, and with ``follow`` those to come; nothing where it has not started.

    Raises:
        UserError, Unreachable: as of ``ClusterApi``.
    """
    answer: Any = jobs.log(container.pod, container.name, lines, follow=follow)
    if answer is None:
        return
    rest = b""
    for chunk in answer.stream(1 << 14, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")
