"""State of a run: its steps by their pods, their jobs, and its end.

Kubeflow Pipelines' own ``task_details`` stand still once the Workflow exceeds 1 MiB, which takes about ten steps. They
are used for steps without a pod (cached ones, or where pods may not be read).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.jobs import Jobs, JobState
from platform_sdk.kubeflow.remote.pods import StepState, newest, step_state
from platform_sdk.kubeflow.remote.runs import Run, Step
from platform_sdk.kubeflow.training_job.api import ApiUnavailable, expected_form

ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELED", "SKIPPED"})
DETAILS_ONLY = "steps are shown as Kubeflow Pipelines lists them, which may stop after about ten steps"


@dataclass(frozen=True)
class RunState:
    """A run at one moment. ``unseen`` is the reason why a part of it cannot be seen."""

    run_id: str
    name: str
    state: str
    error: str = ""
    steps: tuple[StepState, ...] = ()
    jobs: tuple[JobState, ...] = ()
    unseen: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True)
class _History:
    """Times of a run's last retry and of its last cancellation; None if there was none."""

    state: str
    restarted: datetime | None = None
    cancelled: datetime | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED


def look(server: Server, run: Run, jobs: Jobs | None, last: RunState | None = None) -> RunState:
    """Return a run's current state.

    Args:
        jobs: None shows no jobs, and steps as Kubeflow Pipelines lists them.
        last: the previous state; its steps and jobs are kept while the cluster does not respond.

    Raises:
        UserError: the server cannot be reached or refuses. (Reasons for unseen jobs and pods are in ``unseen``.)
    """
    found = server.ask(server.api.runs.run_service_get_run, run.run_id)
    history = _history(found.state or "PENDING", found.state_history or ())
    details = {one.display_name: one for one in (found.run_details.task_details if found.run_details else None) or ()}
    of_pods: Mapping[str, StepState] = {}
    made: tuple[JobState, ...] = ()
    notes: list[str] = []
    away = ""
    if jobs is not None:
        try:
            with expected_form("the list of pods"):
                of_pods = {name: step_state(name, pod) for name, pod in newest(jobs.step_pods(run.run_id)).items()}
        except ApiUnavailable as error:
            away = str(error)
        except UserError as error:
            notes.append(f"{DETAILS_ONLY}: {error}")
        try:
            made, hidden = jobs.states(run.label)
            notes += [hidden] if hidden else []
        except ApiUnavailable as error:
            away = str(error)
    steps = _steps(run, history, of_pods, details)
    if away and last is not None:
        steps, made = last.steps or steps, last.jobs
    return RunState(
        run_id=run.run_id,
        name=run.name,
        state=history.state,
        error=(found.error.message or "") if found.error else "",
        steps=steps,
        jobs=made,
        unseen=away or "; ".join(notes),
    )


def _history(state: str, entries: Iterable[Any]) -> _History:
    """Read a run's history. Pipelines ends a cancelled run as FAILED; its history has CANCELING before that."""
    restarted = cancelled = None
    before = ""
    for entry in entries:
        now = entry.state or before  # the server writes entries without a state
        if now in ("PENDING", "RUNNING") and before in ENDED:
            restarted, cancelled = entry.update_time, None
        elif now == "CANCELING":
            cancelled = entry.update_time
        before = now
    return _History("CANCELED" if state == "FAILED" and cancelled else state, restarted, cancelled)


def _steps(
    run: Run, history: _History, of_pods: Mapping[str, StepState], details: Mapping[str, Any]
) -> tuple[StepState, ...]:
    states: dict[str, StepState] = {}
    begun: set[str] = set()  # dependencies of a started step
    for step in reversed(run.steps):
        state = of_pods.get(step.name) or _listed(step.name, details.get(step.name))
        unknown = step.name not in of_pods and state.state not in ENDED
        if unknown and (step.name in begun or history.state == "SUCCEEDED"):
            state = StepState(step.name, "SUCCEEDED")  # cached, or its pod was deleted
        states[step.name] = state = _corrected(step, state, history)
        if state.state != "PENDING" and not step.at_exit:
            begun |= step.needs
    return tuple(states[step.name] for step in run.steps)


def _corrected(step: Step, state: StepState, history: _History) -> StepState:
    """Return the state with the facts that only the run's history has."""
    repeated = step.at_exit or state.state == "FAILED"
    if repeated and not history.ended and _before(state.ended_at, history.restarted):
        return StepState(step.name, "PENDING")  # its end belongs to the attempt before the retry
    if state.state == "FAILED" and history.cancelled and not _before(state.ended_at, history.cancelled):
        return replace(state, state="CANCELED", reason="")
    return state


def _before(time: datetime | None, other: datetime | None) -> bool:
    return time is not None and other is not None and time < other


def _listed(name: str, detail: Any | None) -> StepState:
    """Return a step's state from ``task_details``. A step that has not started or was skipped has no state."""
    if detail is None or not detail.state:
        return StepState(name, "PENDING")
    if detail.state not in ENDED or not detail.start_time or not detail.end_time:
        return StepState(name, detail.state)
    seconds = (detail.end_time - detail.start_time).total_seconds()
    return StepState(name, detail.state, max(seconds, 0.0), ended_at=detail.end_time)


def changes(old: RunState | None, new: RunState) -> Iterator[dict[str, str]]:
    """Return the changes since the previous state as records; without one, every started step."""
    before = {} if old is None else {("step", one.name): (one.state, one.reason) for one in old.steps}
    before |= {} if old is None else {("job", one.name): (one.state, one.reason) for one in old.jobs}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    for step in new.steps:
        if before.get(("step", step.name), ("PENDING", "")) != (step.state, step.reason):
            yield {"time": now, "step": step.name, "state": step.state, "reason": step.reason}
    for job in new.jobs:
        if before.get(("job", job.name)) != (job.state, job.reason):
            record = {"step": job.step, "part": job.part, "job": job.name, "state": job.state, "reason": job.reason}
            yield {"time": now, **record}
    if old is None or (old.state, old.error) != (new.state, new.error):
        yield {"time": now, "run": new.run_id, "name": new.name, "state": new.state, "error": new.error}
    if new.unseen and (old is None or old.unseen != new.unseen):
        yield {"time": now, "unseen": new.unseen}
