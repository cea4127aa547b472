"""State of a job, read from the cluster's objects. Pure functions over objects as the API server gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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


ENDS = {"Succeeded": State.SUCCEEDED, "Complete": State.SUCCEEDED, "Failed": State.FAILED}
"""State of an ended job by its condition, for any kind of job."""


@dataclass(frozen=True)
class Observation:
    """State of a job, and the cluster's reason."""

    state: State
    reason: str = ""


def observe(
    job: Mapping[str, Any], workload: Mapping[str, Any] | None, pods: Sequence[Mapping[str, Any]]
) -> Observation:
    """Return the state of a job of any kind.

    Args:
        workload: Kueue's object for the job, if it exists.
        pods: the job's pods.
    """
    conditions = _conditions(job)
    for type_, state in ENDS.items():
        if type_ in conditions:
            return Observation(state, _reason(conditions[type_]))
    if _suspended(job):
        return _suspended_state(workload)
    phases = [str(pod.get("status", {}).get("phase")) for pod in pods]
    running = phases.count("Running")
    if running:
        # Failed pods stay when others replace them.
        return Observation(State.RUNNING, f"{running} of {max(live_pods(pods), expected_pods(job))} pods run")
    if pods and set(phases) <= {"Succeeded", "Failed"}:
        return Observation(State.RUNNING, "its pods have ended; waiting for the job's result")
    return Observation(State.ADMITTED, _pending(pods))


def ended_at(job: Mapping[str, Any]) -> float | None:
    """Return when a job ended, in seconds since the epoch; None if it has not ended or has no such time."""
    conditions = _conditions(job)
    for type_ in ENDS:
        if moment := conditions.get(type_, {}).get("lastTransitionTime"):
            return datetime.fromisoformat(moment).timestamp()
    return None


def image_digests(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of a pod's images by their names, as its status has them; empty before its containers run."""
    status = pod.get("status", {})
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return {one["image"]: one["imageID"].rpartition("@")[2] for one in containers if one.get("imageID")}


def live_pods(pods: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of pods that have not failed."""
    return sum(pod.get("status", {}).get("phase") != "Failed" for pod in pods)


def expected_pods(job: Mapping[str, Any]) -> int:
    """Return the number of pods that a job has when all its pods run; 0 if its specification does not give it."""
    spec = job.get("spec", {})
    if "pytorchReplicaSpecs" in spec:
        if spec.get("elasticPolicy"):
            return int(spec["elasticPolicy"]["minReplicas"])
        return sum(int(role["replicas"]) for role in spec["pytorchReplicaSpecs"].values())
    if "completions" in spec:
        ended = int((job.get("status") or {}).get("succeeded") or 0)
        return min(int(spec["parallelism"]), int(spec["completions"]) - ended)
    return int((spec.get("trainer") or {}).get("numNodes", 0))


def _suspended_state(workload: Mapping[str, Any] | None) -> Observation:
    """Return the state of a suspended job. A job that Kueue evicted was admitted before."""
    conditions = {} if workload is None else _conditions(workload, held=False)
    holds = {name for name, condition in conditions.items() if condition.get("status") == "True"}
    quota = conditions.get("QuotaReserved", {})
    # The condition of a quota that is reserved is no reason to wait.
    missing = "" if "QuotaReserved" in holds else _reason(quota)
    if "Evicted" in holds:
        evicted = conditions["Evicted"]
        why = [_reason(evicted)] + [missing] * (quota.get("message") != evicted.get("message"))
        return Observation(State.PREEMPTED, "; ".join(text for text in why if text))
    if "Admitted" in holds:
        return Observation(State.ADMITTED, "Kueue is about to start it")
    if "QuotaReserved" in holds:
        return Observation(State.QUEUED, f"{quota.get('message')}; waiting for the queue's admission checks")
    return Observation(State.QUEUED, missing or "Kueue has not processed it yet")


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
    return "its pods do not exist yet" if not pods else "its pods have not started yet"


def _suspended(job: Mapping[str, Any]) -> bool:
    spec = job.get("spec", {})
    return bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"))


def _conditions(item: Mapping[str, Any], *, held: bool = True) -> dict[str, Mapping[str, Any]]:
    """Return the conditions by type; only true conditions, unless ``held`` is false."""
    found = (item.get("status") or {}).get("conditions") or ()
    return {one["type"]: one for one in found if not held or one.get("status") == "True"}


def _reason(condition: Mapping[str, Any]) -> str:
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    return f"{reason}: {message}" if reason and message else reason or message
