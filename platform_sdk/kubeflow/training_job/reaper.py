"""End jobs that no launcher follows.

A run that is terminated sends no signal to the job that one of its steps created. So a launcher writes a heartbeat into
its job, and what has had none for a while is deleted: by ``hopforge gc``, which a CronJob calls.

A launcher cannot write while the API server is unavailable, and waits for it. So the time without a heartbeat is longer
than its patience, to spare if the CronJob is back before the launcher; and a heartbeat that is written between the look
and the deletion saves the job.
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

    Raises:
        UserError: the API server refuses, or there is none.
        ApiUnavailable: it cannot be reached.
    """
    reaped = []
    for name, backend in BACKENDS.items():
        api = api_of(name, namespace, connection)
        for orphan, version in _orphans(api, backend.KIND, now, silent_seconds):
            try:
                if not dry_run:
                    api.delete(orphan.name, version)
            except WriteConflict:
                continue  # by a heartbeat, or whatever else: the next time will tell
            reaped.append(orphan)
    return reaped


def _orphans(api: ClusterApi, kind: str, now: float, silent_seconds: float) -> Iterator[tuple[Orphan, str]]:
    """The orphans, and the version of the object in which each was seen to be one."""
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
