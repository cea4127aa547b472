"""Kueue's queues: totals of a ClusterQueue, and a job's position in its LocalQueue."""

from __future__ import annotations

import json
from typing import Any

from platform_sdk.diagnosis.facts import QueueUsage
from platform_sdk.kubeflow.remote.jobs import Item, Jobs
from platform_sdk.kubeflow.training_job.api import KUEUE_GROUP, KUEUE_VERSION

VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues/{name}/pendingworkloads"
TOTALS = "/apis/" + KUEUE_GROUP + "/" + KUEUE_VERSION


def usage(jobs: Jobs, queue: str) -> tuple[QueueUsage, ...]:
    """Return the totals of a LocalQueue's ClusterQueue, and of the other queues in its cohort.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    local = _get(jobs, f"{TOTALS}/namespaces/{{namespace}}/localqueues/{{name}}", name=queue)
    if local is None:
        return ()
    own = _get(jobs, f"{TOTALS}/clusterqueues/{{name}}", name=local["spec"]["clusterQueue"])
    if own is None:
        return ()
    cohort = _cohort(own)
    listed = _get(jobs, f"{TOTALS}/clusterqueues") if cohort else None
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


def position(jobs: Jobs, queue: str, workload: str) -> int | None:
    """Return the position of a Workload in its LocalQueue, from 0; None if Kueue does not list it.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    pending = _get(jobs, VISIBILITY, name=queue)
    items = (pending or {}).get("items") or ()
    found = [item for item in items if item["metadata"]["name"] == workload]
    return int(found[0].get("positionInLocalQueue", 0)) if found else None


def _cohort(queue: Item) -> str:
    return str(queue["spec"].get("cohortName") or "")


def _get(jobs: Jobs, path: str, **place: str) -> Item | None:
    """Return the object at a path of the API server; None if it does not exist."""
    place = {key: value for key, value in {"namespace": jobs.namespace, **place}.items() if f"{{{key}}}" in path}
    answer: Any = jobs.kinds[0].api.found(
        jobs.connection.core_api.api_client.call_api, path, "GET", place, [], {"Accept": "application/json"},
        auth_settings=["BearerToken"], _return_http_data_only=True, _preload_content=False,
    )  # fmt: skip
    return None if answer is None else dict(json.loads(answer.data))
