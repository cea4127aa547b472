"""State of a job, read from the cluster's objects. Pure functions over objects as the API server gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """State of a job. ``PREEMPTED`` is queued again after it had been admitted; it resumes from its checkpoint."""

    QUEUED = "Queued"
    ADMITTED = "Admitted"
    RUNNING = "Running"
    PREEMPTED = "Preempted"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def waiting(self) -> bool:
        return self in (State.QUEUED, State.PREEMPTED)

    @property
    def ended(self) -> bool:
        return self in (State.SUCCEEDED, State.FAILED)


@dataclass(frozen=True)
class Observation:
    """A job's state, and what the cluster gives as the reason."""

    state: State
    reason: str = ""


def observe(
    job: Mapping[str, Any], workload: Mapping[str, Any] | None, pods: Sequence[Mapping[str, Any]]
) -> Observation:
    """The state of a job of any kind.

    Args:
        workload: Kueue's object for the job, where there is one.
        pods: the job's pods.
    """
    conditions = _conditions(job)
    for type_, state in (("Succeeded", State.SUCCEEDED), ("Complete", State.SUCCEEDED), ("Failed", State.FAILED)):
        if type_ in conditions:
            return Observation(state, _reason(conditions[type_]))
    if _suspended(job):
        return _waiting(workload)
    running = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    if running:
        return Observation(State.RUNNING, f"{len(running)} of {len(pods)} pods run")
    return Observation(State.ADMITTED, _pending(pods))


def _waiting(workload: Mapping[str, Any] | None) -> Observation:
    """Return why a suspended job waits. A job that Kueue evicted was admitted before."""
    conditions = {} if workload is None else _conditions(workload, held=False)
    evicted = conditions.get("Evicted", {}).get("status") == "True"
    quota = conditions.get("QuotaReserved", {})
    if evicted:
        why = [_reason(conditions["Evicted"]), _reason(quota)]
        return Observation(State.PREEMPTED, "; ".join(text for text in why if text))
    return Observation(State.QUEUED, _reason(quota) or "Kueue has not looked at it yet")


def _pending(pods: Sequence[Mapping[str, Any]]) -> str:
    """Return why no pod runs yet."""
    for pod in pods:
        status = pod.get("status", {})
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return f"pod {pod['metadata']['name']}: {_reason(condition)}"
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = (container.get("state") or {}).get("waiting")
            if waiting:
                return f"pod {pod['metadata']['name']}: {_reason(waiting)}"
    return "its pods are not there yet" if not pods else "its pods have not started yet"


def _suspended(job: Mapping[str, Any]) -> bool:
    spec = job.get("spec", {})
    return bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"))


def _conditions(item: Mapping[str, Any], *, held: bool = True) -> dict[str, Mapping[str, Any]]:
    """The conditions by type; only those that hold, unless ``held`` is false."""
    found = (item.get("status") or {}).get("conditions") or ()
    return {one["type"]: one for one in found if not held or one.get("status") == "True"}


def _reason(condition: Mapping[str, Any]) -> str:
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    return f"{reason}: {message}" if reason and message else reason or message
