"""Kueue's queues: totals of a ClusterQueue, and a job's position in its LocalQueue."""

from __future__ import annotations

from typing import Any

from platform_sdk.diagnosis.facts import QueueUsage
from platform_sdk.kubeflow.remote.jobs import Item, Jobs
from platform_sdk.kubeflow.training_job.api import KUEUE_PATH, read_object

VISIBILITY_PATH = "/apis/visibility.kueue.x-k8s.io/v1beta2"


def usage(jobs: Jobs, queue: str) -> tuple[QueueUsage, ...]:
    """Return the totals of a LocalQueue's ClusterQueue, and of the other queues in its cohort.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    local = read_object(jobs.connection, f"{KUEUE_PATH}/namespaces/{jobs.namespace}/localqueues/{queue}")
    if local is None:
        return ()
    own = read_object(jobs.connection, f"{KUEUE_PATH}/clusterqueues/{local['spec']['clusterQueue']}")
    if own is None:
        return ()
    cohort = _cohort(own)
    listed = read_object(jobs.connection, f"{KUEUE_PATH}/clusterqueues") if cohort else None
    others = [other for other in (listed or {}).get("items", ()) if _cohort(other) == cohort]
    return tuple(total for item in others or [own] for total in totals(item))


def totals(queue: Item) -> tuple[QueueUsage, ...]:
    """Return the totals of a ClusterQueue by flavor and resource."""
    nominal = {
        (flavor["name"], resource["name"]): str(resource.get("nominalQuota", "0"))
        for group in queue["spec"].get("resourceGroups") or ()
        for flavor in group["flavors"]
        for resource in flavor["resources"]
    }
    return tuple(
        QueueUsage(
            queue=queue["metadata"]["name"],
            flavor=flavor["name"],
            resource=resource["name"],
            nominal=nominal.get((flavor["name"], resource["name"]), "0"),
            used=str(resource.get("total", "0")),
            borrowed=str(resource.get("borrowed", "0")),
        )
        for flavor in (queue.get("status") or {}).get("flavorsReservation") or ()
        for resource in flavor["resources"]
    )


def pending(connection: Any, namespace: str, queue: str) -> list[str]:
    """Return the names of the Workloads that wait in a LocalQueue, in its order; empty if Kueue does not list them.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    path = f"{VISIBILITY_PATH}/namespaces/{namespace}/localqueues/{queue}/pendingworkloads"
    found = (read_object(connection, path) or {}).get("items") or ()
    ordered = sorted(found, key=lambda item: int(item.get("positionInLocalQueue", 0)))
    return [item["metadata"]["name"] for item in ordered]


def position(jobs: Jobs, queue: str, workload: str) -> int | None:
    """Return the position of a Workload in its LocalQueue, from 0; None if Kueue does not list it.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    names = pending(jobs.connection, jobs.namespace, queue)
    return names.index(workload) if workload in names else None


def _cohort(queue: Item) -> str:
    return str(queue["spec"].get("cohortName") or "")
