"""List and watch of one job, its pods and Kueue's Workload.

Each watch is a stream of the API server that a thread reads. A stream that ends for any reason (timeout, lost
connection, 410 Gone) is replaced by a new list and a new watch from its version, so no event is missed and no error
needs separate handling.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

from platform_sdk.kubeflow.training_job.api import ClusterApi, Item, Selection

WATCH_SECONDS = 60
"""The API server ends a watch after this time. A connection that is lost without notice is replaced soon after."""
RETRY_SECONDS = 10.0
"""Pause before a watch that ended sooner than this is replaced."""
END = "END"
JOB, PODS, WORKLOAD = "job", "pods", "workload"


@dataclass(frozen=True)
class Event:
    """An event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK with an object, or the stream's END."""

    stream: Stream
    type: str
    item: Item


class Clock(Protocol):
    """Clock and waiting for events; tests replace it."""

    def time(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...

    def receive(self, events: SimpleQueue[Event], seconds: float, streams: int, /) -> list[Event]:
        """Return the queued events, or wait up to ``seconds`` for events of ``streams``."""


class SystemClock:
    """Clock of this machine."""

    def time(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def receive(self, events: SimpleQueue[Event], seconds: float, streams: int) -> list[Event]:
        received = []
        with contextlib.suppress(Empty):
            received.append(events.get(timeout=seconds))
            while True:
                received.append(events.get_nowait())
        return received


class Stream:
    """An open watch, read by a thread into a queue."""

    def __init__(self, source: str, answer: Any, events: SimpleQueue[Event], opened: float) -> None:
        self.source, self.opened = source, opened
        self._answer, self._events = answer, events
        Thread(target=self._read, daemon=True, name=f"watch {source}").start()

    def _read(self) -> None:
        from urllib3.exceptions import HTTPError

        with contextlib.suppress(HTTPError, OSError, ValueError, KeyError, TypeError):
            for line in self._answer:
                event = json.loads(line)
                if event["type"] == "ERROR":  # usually 410: the API server no longer has the versions in between
                    break
                self._events.put(Event(self, event["type"], event["object"]))
        self._answer.close()
        self._events.put(Event(self, END, {}))

    def close(self) -> None:
        """End the thread."""
        with contextlib.suppress(ValueError, RuntimeError, OSError):  # the stream has ended
            self._answer.shutdown()


class JobWatch:
    """Present state of a job's objects.

    Args:
        queued: True if Kueue has a Workload for the job.
        see_pod: called with every version of a pod.
    """

    def __init__(self, api: ClusterApi, name: str, queued: bool, see_pod: Callable[[Item], None], clock: Clock) -> None:
        self.job: Item | None = None
        self.workload: Item | None = None
        self.pods: dict[str, Item] = {}
        self._api, self._name, self._queued, self._see_pod, self._clock = api, name, queued, see_pod, clock
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._streams: dict[str, Stream] = {}
        self._not_before: dict[str, float] = {}

    def refresh(self) -> None:
        """List and watch objects that are not watched at present.

        Raises:
            UserError, ApiUnavailable: see ``ClusterApi``.
        """
        for source, selection in self._selections():
            if source in self._streams or self._clock.time() < self._not_before.get(source, 0.0):
                continue
            items, version = self._api.list_objects(selection)
            self._replace(source, items)
            opened = self._clock.time()
            answer = self._api.open_watch(selection, version, WATCH_SECONDS)
            self._streams[source] = Stream(source, answer, self._events, opened)

    def wait(self, seconds: float) -> None:
        """Return after a change, or after ``seconds``."""
        now = self._clock.time()
        pauses = [until - now for until in self._not_before.values() if until > now]
        for event in self._clock.receive(self._events, max(0.0, min([seconds, *pauses])), len(self._streams)):
            if self._streams.get(event.stream.source) is not event.stream:
                continue
            if event.type == END:
                self._ended(event.stream)
            elif event.type != "BOOKMARK":
                self._change(event.stream.source, event.item, event.type == "DELETED")

    def close(self) -> None:
        """End all watches."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _selections(self) -> Iterator[tuple[str, Selection]]:
        yield JOB, self._api.job_selection(self._name)
        yield PODS, self._api.pods_selection(self._name)
        if self._queued and self.job is not None:
            yield WORKLOAD, self._api.workload_selection(self.job["metadata"]["uid"])

    def _ended(self, stream: Stream) -> None:
        del self._streams[stream.source]
        if self._clock.time() - stream.opened < RETRY_SECONDS:
            self._not_before[stream.source] = self._clock.time() + RETRY_SECONDS

    def _replace(self, source: str, items: list[Item]) -> None:
        if source == PODS:
            self.pods.clear()
        elif source == WORKLOAD:
            self.workload = None
        else:
            self.job = None
        for item in items:
            self._change(source, item, deleted=False)

    def _change(self, source: str, item: Item, deleted: bool) -> None:
        if source == JOB:
            self.job = None if deleted else item
        elif source == WORKLOAD:
            self.workload = None if deleted else item
        else:
            self._see_pod(item)
            if deleted:
                self.pods.pop(item["metadata"]["uid"], None)
            else:
                self.pods[item["metadata"]["uid"]] = item
