"""Collection of the facts of a run on a cluster: Pipelines' steps, jobs, pods, logs, warnings, Kueue's objects, and
figures in MLflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from platform_sdk.config.errors import UserError
from platform_sdk.diagnosis.facts import Facts, JobFacts, Line, QueueUsage, RunState, StepFacts
from platform_sdk.diagnosis.redaction import redacted
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.curves import Curves, read_curves
from platform_sdk.kubeflow.remote.jobs import Item, Jobs, Kind
from platform_sdk.kubeflow.remote.logs import Container, read_log
from platform_sdk.kubeflow.remote.pods import MAIN, StepState, newest
from platform_sdk.kubeflow.remote.queues import position, usage
from platform_sdk.kubeflow.remote.runs import Run
from platform_sdk.kubeflow.remote.state import look
from platform_sdk.kubeflow.training_job.api import expected_form
from platform_sdk.kubeflow.training_job.description import LABEL_QUEUE
from platform_sdk.kubeflow.training_job.facts import event_facts, job_facts, pod_facts, workload_facts
from platform_sdk.kubeflow.training_job.failure import with_logs
from platform_sdk.kubeflow.training_job.state import State, observe

T = TypeVar("T")

LINES = 80
STATES: dict[str, RunState] = {
    "SUCCEEDED": "FINISHED", "SKIPPED": "FINISHED", "FAILED": "FAILED", "CANCELED": "KILLED", "PENDING": "PENDING",
}  # fmt: skip
"""Our state for each state of Kubeflow Pipelines; every other one is RUNNING."""


def collect(server: Server, run: Run, jobs: Jobs) -> tuple[Facts, list[str]]:
    """Return the facts about a run, and reasons why some cannot be seen.

    Raises:
        UserError: Kubeflow Pipelines cannot be reached or refuses.
    """
    state = look(server, run, jobs)
    notes = [state.unseen] if state.unseen else []
    pods: Mapping[str, Item] = _seen(lambda: newest(jobs.step_pods(run.run_id)), {}, notes)
    made: list[tuple[Kind, list[Item]]] = [(kind, _seen(partial(kind.of, run.label), [], notes)) for kind in jobs.kinds]
    each: list[JobFacts | None] = [
        _seen(partial(_job, jobs, kind, job, notes), None, notes) for kind, of_kind in made for job in of_kind
    ]
    found = [job for job in each if job is not None]
    queues = dict.fromkeys(job.queue for job in found if job.queue and job.state in ("Queued", "Preempted"))
    totals: list[tuple[QueueUsage, ...]] = [_seen(partial(usage, jobs, queue), (), notes) for queue in queues]
    started = any(STATES.get(step.state) != "PENDING" for step in state.steps)
    none: Curves = ((), ())
    training, selections = _seen(partial(read_curves, run.run_id), none, notes) if started else none
    facts = Facts(
        run=run.run_id,
        place="cluster",
        collected=datetime.now(UTC).isoformat(timespec="seconds"),
        state=STATES.get(state.state, "RUNNING"),
        error=state.error,
        steps=tuple(_step(step, pods.get(step.name), jobs, notes) for step in state.steps),
        training=training,
        selections=selections,
        jobs=tuple(sorted(found, key=lambda job: (job.created, job.name))),
        usage=tuple(total for queue in totals for total in queue),
    )
    return redacted(facts), list(dict.fromkeys(notes))


def _seen(read: Callable[[], T], missing: T, notes: list[str]) -> T:
    """Return the result of ``read``, or ``missing`` with a note of the reason why nothing can be seen."""
    try:
        with expected_form("an answer of the API server"):
            return read()
    except UserError as error:
        notes.append(str(error))
        return missing


def _step(step: StepState, pod: Item | None, jobs: Jobs, notes: list[str]) -> StepFacts:
    state = STATES.get(step.state, "RUNNING")
    name = "" if pod is None else str(pod["metadata"]["name"])
    lines: tuple[Line, ...] = ()
    if pod is not None and state in ("FAILED", "RUNNING"):
        container = Container(step.name, name, MAIN, step.name, of_step=True)
        lines = _seen(lambda: _numbered(read_log(jobs, container, LINES) or ()), (), notes)
    return StepFacts(
        name=step.name,
        state=state,
        started="" if pod is None else str(pod["metadata"].get("creationTimestamp") or ""),
        ended="" if step.ended_at is None else step.ended_at.isoformat(timespec="seconds"),
        error=step.reason if state == "FAILED" else "",
        log=f"log of pod {name}" if name else "",
        lines=lines,
    )


def _numbered(lines: Iterable[str]) -> tuple[Line, ...]:
    return tuple(Line(number=number, text=line) for number, line in enumerate(lines, start=1))


def _job(jobs: Jobs, kind: Kind, job: Item, notes: list[str]) -> JobFacts:
    """Return the facts about a job; the pods of a job that succeeded are not read."""
    job = {"kind": kind.name, **job}
    name, uid = job["metadata"]["name"], job["metadata"].get("uid", "")
    bare = observe(job, None, ())
    if bare.state is State.SUCCEEDED:
        return job_facts(job, (), None, (), state=str(bare.state), reason=bare.reason)
    unseen: list[str] = []
    pods: list[Item] = _seen(partial(kind.api.pods, name), [], unseen)
    workload: Item | None = _seen(partial(kind.api.workload, uid), None, unseen)
    seen = observe(job, workload, pods)
    events: list[Item] = _seen(
        partial(kind.api.warning_events, [name, *(pod["metadata"]["name"] for pod in pods)], job), [], unseen
    )
    queue = str((job["metadata"].get("labels") or {}).get(LABEL_QUEUE, ""))
    place: int | None = None
    if workload is not None and seen.state.waiting:
        place = _seen(partial(position, jobs, queue, workload["metadata"]["name"]), None, notes)
    notes += unseen
    return job_facts(
        job,
        [_seen(partial(with_logs, pod, kind.api), pod_facts(pod), notes) for pod in pods],
        None if workload is None else workload_facts(workload, place),
        map(event_facts, events),
        state=str(seen.state),
        reason=seen.reason,
        unseen="; ".join(unseen),
    )
