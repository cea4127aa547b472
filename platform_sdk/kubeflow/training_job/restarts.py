"""Count of a job's restarted pods.

A PyTorchJob replaces pods ended by a signal without limit: its ``backoffLimit`` does not count them. So the launcher
counts them from the pod versions in its watch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from platform_sdk.kubeflow.training_job.failure import end_text
from platform_sdk.processes.torchrun import NODE_LOST

SIGNALLED = 128
"""Smallest exit code for which a PyTorchJob restarts a pod: 128 plus the number of the signal that ended it."""


@dataclass(frozen=True)
class Failure:
    """End of a pod's container by a signal, or a pod's eviction by its node."""

    pod: str
    text: str
    number: int  # count of such ends so far, including the pods that this pod replaced


class Restarts:
    """Failures of a job's pods that the job's controller answers with a new pod or container."""

    def __init__(self) -> None:
        self.latest: Failure | None = None
        self._known: dict[str, set[str]] = defaultdict(set)

    def see(self, pod: Mapping[str, Any]) -> Failure | None:
        """Return the failure that this version of a pod shows for the first time."""
        if pod["metadata"].get("deletionTimestamp"):
            return None  # deleted, e.g. drained, preempted or suspended
        name = pod["metadata"]["name"]
        place = pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index", name)
        known, before = self._known[place], self.latest
        for moment, text in _failures(pod):
            if moment not in known:
                known.add(moment)
                self.latest = Failure(name, text, len(known))
        return self.latest if self.latest is not before else None


def _failures(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the key and the description of each failure of a pod. A lost first node is that node's failure."""
    uid, status = pod["metadata"].get("uid", ""), pod.get("status", {})
    if status.get("reason") == "Evicted":
        yield uid, f"was evicted: {status.get('message', '')}"
        return
    for container in status.get("containerStatuses") or ():
        for when in ("lastState", "state"):
            ended = (container.get(when) or {}).get("terminated")
            if ended and ended["exitCode"] >= SIGNALLED and ended["exitCode"] != NODE_LOST:
                yield f"{uid} {container['name']} {ended.get('finishedAt')}", end_text(ended)
