"""The collections of a service, side by side: what one of them lacks touches no other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.retrieval.connection import lite_path
from platform_sdk.retrieval.service.collection import Collection, HostedCollection
from platform_sdk.retrieval.service.metrics import Metrics
from platform_sdk.retrieval.service.refusals import RequestError
from platform_sdk.retrieval.wire import ListedCollection, Status

log = logging.getLogger(__name__)

LEAVE_SECONDS = 5.0  # for what threads are still at when all requests are answered


class Host:
    """Opens the collections, and says how far they are.

    Each is opened and searched on a thread of its own, so that a slow or hanging one makes no other wait; those in one
    Milvus Lite file share one, since its engine takes one writer.
    """

    def __init__(self, spec: ServiceSpec, metrics: Metrics) -> None:
        self._leaving = threading.Event()
        self._workers: dict[Path | str, ThreadPoolExecutor] = {}
        self._hosted = {
            one.name: HostedCollection(one, spec, metrics, self._worker(one), self._leaving) for one in spec.collections
        }
        self.abandoned = False
        """True if threads were left behind that did not end in time."""

    def _worker(self, spec: CollectionSpec) -> ThreadPoolExecutor:
        key = lite_path(spec.retrieval, spec.run_dir / "index") or spec.name
        if key not in self._workers:
            self._workers[key] = ThreadPoolExecutor(1, thread_name_prefix=f"collection {spec.name}")
        return self._workers[key]

    @property
    def status(self) -> Status:
        """Ready when all collections that can be opened are open: none is at its first try, and one is open."""
        if self._leaving.is_set():
            return Status(status="stopping", detail="the service is about to end")
        untried = [hosted.status.detail for hosted in self._hosted.values() if not hosted.tried]
        closed = [hosted.status.detail for hosted in self._hosted.values() if not hosted.is_open]
        if untried:
            return Status(status="loading", detail="; ".join(untried))
        return Status(status="failed" if len(closed) == len(self._hosted) else "ready", detail="; ".join(closed))

    def readiness(self, name: str | None, digest: str | None, team: str | None) -> Status:
        """Return ``status``, its detail of the team's own collections only; or the status of the collection ``name``.

        Raises:
            RequestError: the team has no such collection, or all of its own are open and none has ``digest``.
        """
        asked = self._of(team) if name is None else [self._named(name, team)]
        closed = "; ".join(hosted.status.detail for hosted in asked if not hosted.is_open)
        if self._leaving.is_set():
            status = self.status
        elif name is None:
            status = Status(status=self.status.status, detail=closed)
        else:
            status = asked[0].status
        if status.status != "ready" or digest is None or any(hosted.serves(digest) for hosted in asked):
            return status
        if not closed:
            raise RequestError(409, "other_corpus", f"corpus {digest} is not served")
        return Status(status="failed", detail=closed)

    def leave(self) -> None:
        """Be ready no longer and build nothing more; what still comes is answered."""
        self._leaving.set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open and search the collections while the context lasts; then answer what waits."""
        living = {asyncio.create_task(hosted.serve()): name for name, hosted in self._hosted.items()}
        yield
        self.leave()
        for hosted in self._hosted.values():
            hosted.end()
        ended, late = await asyncio.wait(living, timeout=LEAVE_SECONDS)
        for task in late:
            log.warning("collection %s was not closed: its thread did not end in time", living[task])
            self.abandoned = True
            task.cancel()
        for worker in self._workers.values():
            worker.shutdown(wait=False, cancel_futures=True)
        for task in ended:
            task.result()

    def collection(self, name: str | None, team: str | None) -> Collection:
        """The collection that a request names, or the team's only one.

        Raises:
            RequestError: none is named and the team has several, the team has none of that name, or it is not open.
        """
        if name is not None:
            return self._named(name, team).collection()
        own = self._of(team)
        if not own:
            raise RequestError(404, "no_such_collection", "there is no collection for this team")
        if len(own) > 1:
            raise RequestError(
                400, "collection_missing", f"name a collection: {', '.join(one.spec.name for one in own)}"
            )
        return own[0].collection()

    def collections_of(self, team: str | None) -> list[ListedCollection]:
        """Return the collections that the team may search, open or not."""
        return [hosted.listed() for hosted in self._of(team)]

    def _of(self, team: str | None) -> list[HostedCollection]:
        return [hosted for hosted in self._hosted.values() if hosted.is_for(team)]

    def _named(self, name: str, team: str | None) -> HostedCollection:
        found = self._hosted.get(name)
        if found is None or not found.is_for(team):  # one answer: a team learns nothing of others' collections
            raise RequestError(404, "no_such_collection", f"there is no collection {name!r} for this team")
        return found
