"""Collections of a service: a failure of one does not affect the others."""

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
from platform_sdk.run_dir import RunDir

log = logging.getLogger(__name__)

LEAVE_SECONDS = 5.0  # for threads to finish after all requests are answered


class Host:
    """Manager of the collections.

    Each collection has a separate thread, so a slow or hanging one does not delay the others; collections in one Milvus
    Lite file share a thread, since its engine supports one writer.
    """

    def __init__(self, spec: ServiceSpec, metrics: Metrics) -> None:
        self._leaving = threading.Event()
        self._workers: dict[Path | str, ThreadPoolExecutor] = {}
        self._hosted = {
            one.name: HostedCollection(one, spec, metrics, self._worker(one), self._leaving) for one in spec.collections
        }
        self.abandoned = False
        """True if some threads did not end in time."""

    def _worker(self, spec: CollectionSpec) -> ThreadPoolExecutor:
        key = lite_path(spec.retrieval, RunDir(spec.run_dir).index) or spec.name
        if key not in self._workers:
            self._workers[key] = ThreadPoolExecutor(1, thread_name_prefix=f"collection {spec.name}")
        return self._workers[key]

    @property
    def status(self) -> Status:
        """Return ready when at least one collection is open and none is at its first attempt."""
        if self._leaving.is_set():
            return Status(status="stopping", detail="the service is shutting down")
        untried = [hosted.status.detail for hosted in self._hosted.values() if not hosted.tried]
        closed = [hosted.status.detail for hosted in self._hosted.values() if not hosted.is_open]
        if untried:
            return Status(status="loading", detail="; ".join(untried))
        return Status(status="failed" if len(closed) == len(self._hosted) else "ready", detail="; ".join(closed))

    def readiness(self, name: str | None, digest: str | None, team: str | None) -> Status:
        """Return ``status`` with details of the team's collections only, or the status of the collection ``name``.

        Raises:
            RequestError: the team has no such collection, or all its collections are open and none has ``digest``.
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
        """Report not ready and build nothing more; further requests are still answered."""
        self._leaving.set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve the collections inside the context; then answer the waiting requests."""
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
        """Return the requested collection, or the team's only one.

        Raises:
            RequestError: no name is given and the team has several, the name is unknown, or the collection is not open.
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
        if found is None or not found.is_for(team):  # the same answer in both cases hides other teams' collections
            raise RequestError(404, "no_such_collection", f"there is no collection {name!r} for this team")
        return found
