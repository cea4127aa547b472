"""State of a step by its pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from platform_sdk.kubeflow.remote.jobs import Item
from platform_sdk.kubeflow.training_job.description import LABEL_TASK

MAIN = "main"
"""The container of a step, as Argo names it."""
PHASES = {"Pending": "PENDING", "Running": "RUNNING", "Succeeded": "SUCCEEDED", "Failed": "FAILED"}
USUAL = frozenset({"ContainerCreating", "PodInitializing"})  # reasons for a moment's wait


@dataclass(frozen=True)
class StepState:
    """State of a step, as Kubeflow Pipelines names it, e.g. RUNNING. ``seconds`` is its duration once it has ended.

    ``reason`` is one line: why the step failed, or why its pod cannot start.
    """

    name: str
    state: str
    seconds: float | None = None
    reason: str = ""
    ended_at: datetime | None = None


def newest(pods: Iterable[Item]) -> Mapping[str, Item]:
    """Return the newest pod of each step. A retried step may have several."""
    by_step: dict[str, Item] = {}
    for pod in sorted(pods, key=lambda one: str(one["metadata"].get("creationTimestamp") or "")):
        by_step[pod["metadata"]["labels"][LABEL_TASK]] = pod
    return by_step


def step_state(name: str, pod: Item) -> StepState:
    """Return a step's state by its pod."""
    status = pod.get("status", {})
    state = PHASES.get(status.get("phase", ""), "PENDING")
    if state == "PENDING":
        return StepState(name, state, reason=_waiting(status))
    ended = _terminated(status)
    started_at, ended_at = _time(ended.get("startedAt")), _time(ended.get("finishedAt"))
    if state == "RUNNING":
        return StepState(name, state)
    seconds = (ended_at - started_at).total_seconds() if started_at and ended_at else None
    return StepState(name, state, seconds, _failure(status, ended) if state == "FAILED" else "", ended_at)


def _terminated(status: Item) -> Item:
    statuses = status.get("containerStatuses") or ()
    state: Item = next((one.get("state") or {} for one in statuses if one["name"] == MAIN), {})
    return state.get("terminated") or {}


def _failure(status: Item, ended: Item) -> str:
    """Return the reason in one line: the step's own message, else what Kubernetes reports."""
    if message := _first_line(ended.get("message")):
        return message
    if ended.get("reason") == "OOMKilled":
        return "out of memory (OOMKilled): raise launcher.memory in the cluster's file"
    if status.get("reason") or status.get("message"):
        return ": ".join(filter(None, (status.get("reason"), _first_line(status.get("message")))))
    return f"exit code {ended['exitCode']}" if "exitCode" in ended else "its pod failed before the step began"


def _waiting(status: Item) -> str:
    """Return why a pod does not start, unless it has only just been created."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in USUAL:
            return ": ".join(filter(None, (waiting["reason"], _first_line(waiting.get("message")))))
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return ": ".join(filter(None, (condition.get("reason"), _first_line(condition.get("message")))))
    return ""


def _first_line(text: str | None) -> str:
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
