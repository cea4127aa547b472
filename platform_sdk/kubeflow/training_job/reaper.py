"""End jobs that no launcher follows.

A terminated run sends no signal to the jobs of its steps. So a launcher writes a heartbeat into its job, and
``hopforge gc``, run by a CronJob, deletes jobs without a recent heartbeat.

A launcher waits for an unavailable API server and cannot write meanwhile. So the time limit for heartbeats is longer
than the launcher's timeout, with a margin in case the CronJob reconnects first. A heartbeat between listing and
deletion prevents the deletion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from platform_sdk.kubeflow.training_job.api import ClusterApi, WriteConflict
from platform_sdk.kubeflow.training_job.backend import BACKENDS, api_of
from platform_sdk.kubeflow.training_job.description import HEARTBEAT, LABEL_MANAGER, LABEL_RUN, MANAGER
from platform_sdk.kubeflow.training_job.state import observe

SILENT_SECONDS = 2700.0  # above launcher.API_PATIENCE and the CronJob's interval together


@dataclass(frozen=True)
class Orphan:
    """A job without a follower."""

    kind: str
    name: str
    run: str
    silent_seconds: float


def reap(
    namespace: str, now: float, *, silent_seconds: float = SILENT_SECONDS, dry_run: bool = False, connection: Any = None
) -> list[Orphan]:
    """Delete hopforge's unfinished jobs whose last heartbeat is older than ``silent_seconds``; return them.

    Nothing is deleted if the jobs of any kind cannot be listed: the error would hide the deleted ones.

    Raises:
        UserError: the API server refuses, or no cluster is configured.
        ApiUnavailable: it cannot be reached.
    """
    apis = [(api_of(name, namespace, connection), backend.KIND) for name, backend in BACKENDS.items()]
    found = [(api, *orphan) for api, kind in apis for orphan in _orphans(api, kind, now, silent_seconds)]
    reaped = []
    for api, orphan, version in found:
        try:
            if not dry_run:
                api.delete(orphan.name, version)
        except WriteConflict:
            continue  # by a heartbeat or another change; the next run of the reaper decides
        reaped.append(orphan)
    return reaped


def _orphans(api: ClusterApi, kind: str, now: float, silent_seconds: float) -> Iterator[tuple[Orphan, str]]:
    """Yield the orphans with the version of their objects."""
    for job in api.jobs(f"{LABEL_MANAGER}={MANAGER}"):
        metadata = job["metadata"]
        if observe(job, None, ()).state.ended or metadata.get("deletionTimestamp"):
            continue
        # A job that never had a heartbeat counts from its creation.
        beat = metadata.get("annotations", {}).get(HEARTBEAT) or metadata["creationTimestamp"]
        silent = now - datetime.fromisoformat(beat).timestamp()
        if silent > silent_seconds:
            orphan = Orphan(kind, metadata["name"], metadata.get("labels", {}).get(LABEL_RUN, ""), silent)
            yield orphan, metadata["resourceVersion"]
