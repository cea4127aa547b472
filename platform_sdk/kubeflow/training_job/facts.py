"""Facts about a job, from the cluster's objects. Pure functions over objects as the API server gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from platform_sdk.diagnosis.facts import Condition, ContainerFacts, Event, JobFacts, Line, PodFacts, WorkloadFacts
from platform_sdk.kubeflow.training_job.description import LABEL_QUEUE, LABEL_STEP, LABEL_TASK
from platform_sdk.kubeflow.training_job.state import observe

Item = Mapping[str, Any]


def job_facts(
    job: Item, pods: Sequence[PodFacts], workload: WorkloadFacts | None, events: Iterable[Event], *,
    state: str, reason: str, unseen: str = "",
) -> JobFacts:  # fmt: skip
    """Return the facts about a job of any kind; ``state`` and ``reason`` are those of ``observe``."""
    metadata, spec = job["metadata"], job.get("spec", {})
    labels = metadata.get("labels") or {}
    return JobFacts(
        kind=str(job.get("kind") or "Job"),
        name=metadata["name"],
        step=str(labels.get(LABEL_TASK) or labels.get(LABEL_STEP, "")),
        state=state,
        reason=reason,
        created=str(metadata.get("creationTimestamp") or ""),
        queue=str(labels.get(LABEL_QUEUE, "")),
        suspended=bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")),
        conditions=conditions(job),
        pods=tuple(pods),
        workload=workload,
        events=tuple(events),
        unseen=unseen,
    )


def observed(job: Item, workload: Item | None, pods: Sequence[Item]) -> JobFacts:
    """Return the facts about a job without events and logs, from its objects."""
    seen = observe(job, workload, pods)
    found = None if workload is None else workload_facts(workload)
    return job_facts(job, [pod_facts(pod) for pod in pods], found, (), state=str(seen.state), reason=seen.reason)


def pod_facts(pod: Item, logs: Mapping[str, str] | None = None) -> PodFacts:
    """Return the facts about a pod; ``logs`` are the last lines of its containers by name."""
    metadata, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    limits = {
        container["name"]: str(((container.get("resources") or {}).get("limits") or {}).get("memory", ""))
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    }
    statuses = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return PodFacts(
        name=metadata["name"],
        phase=str(status.get("phase") or "Pending"),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        node=str(spec.get("nodeName") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        deleted=str(metadata.get("deletionTimestamp") or ""),
        conditions=conditions(pod),
        containers=tuple(
            _container(one, limits.get(one["name"], ""), (logs or {}).get(one["name"], "")) for one in statuses
        ),
    )


def workload_facts(workload: Item, position: int | None = None) -> WorkloadFacts:
    """Return the facts about Kueue's object for a job."""
    return WorkloadFacts(name=workload["metadata"]["name"], position=position, conditions=conditions(workload))


def event_facts(event: Item) -> Event:
    """Return an event of the cluster."""
    about = event.get("involvedObject") or {}
    return Event(
        object=f"{about.get('kind', '')} {about.get('name', '')}",
        reason=str(event.get("reason") or ""),
        message=str(event.get("message") or ""),
        time=str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or ""),
    )


def conditions(item: Item) -> tuple[Condition, ...]:
    """Return the conditions of an object."""
    return tuple(
        Condition(
            type=one["type"],
            holds=one.get("status") == "True",
            reason=str(one.get("reason") or ""),
            message=str(one.get("message") or ""),
            time=str(one.get("lastTransitionTime") or ""),
        )
        for one in (item.get("status") or {}).get("conditions") or ()
    )


def _container(status: Item, limit: str, log: str) -> ContainerFacts:
    """Return the facts about a container; one that was started again shows its bad end as the last state."""
    state, last = status.get("state") or {}, status.get("lastState") or {}
    bad = (one["terminated"] for one in (state, last) if (one.get("terminated") or {}).get("exitCode"))
    ended: Item = next(bad, state.get("terminated") or {})
    waiting = state.get("waiting") or {}
    return ContainerFacts(
        name=status["name"],
        state="running" if "running" in state else "terminated" if "terminated" in state else "waiting",
        reason=str(ended.get("reason") or waiting.get("reason") or ""),
        message=str(ended.get("message") or waiting.get("message") or ""),
        exit_code=ended.get("exitCode"),
        finished=str(ended.get("finishedAt") or ""),
        image=str(status.get("image") or ""),
        memory_limit=limit,
        lines=tuple(Line(number=number, text=line) for number, line in enumerate(log.splitlines(), start=1)),
    )
