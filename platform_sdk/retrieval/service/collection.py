"""One collection of a service, from the first attempt to open it until it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from platform_sdk.config.errors import UserError
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.record_files import RecordError
from platform_sdk.records import Evidence
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.milvus import CALL_SECONDS
from platform_sdk.retrieval.retriever import IndexRetriever
from platform_sdk.retrieval.service.batching import Batcher, BatcherClosed, QueueFull
from platform_sdk.retrieval.service.metrics import Metrics, timed
from platform_sdk.retrieval.service.refusals import RequestError, later
from platform_sdk.retrieval.wire import CollectionFacts, EncoderFacts, ListedCollection, Status
from platform_sdk.sampling.rollout import RetrieverFault, SearchRequest
from platform_sdk.tracking.opened import contains_run, open_run

log = logging.getLogger(__name__)

LONGEST_PAUSE = 30.0  # most seconds between two attempts to open a collection


class ServiceStopped(Exception):
    """The service stops during the build of an index. Written rows stay, and the next start resumes the build."""


@dataclass(frozen=True)
class Collection:
    """An open collection."""

    facts: CollectionFacts
    retriever: IndexRetriever
    batcher: Batcher

    async def search(self, requests: Sequence[SearchRequest], k: int, seconds: float) -> list[list[Evidence]]:
        """Search in a batch with concurrent requests.

        Raises:
            RequestError: the queue is full, the deadline has passed, the service stops, or Milvus is unavailable.
        """
        try:
            return await self.batcher.search(requests, k, seconds)
        except QueueFull as full:
            raise later(429, "queue_full", str(full), full.retry_after) from full
        except BatcherClosed as error:
            raise later(503, "stopping", "the service is shutting down") from error
        except TimeoutError as error:
            raise RequestError(504, "deadline", f"no answer within {seconds:g} s") from error
        except RetrieverFault as error:
            raise later(503, "retriever_fault", str(error)) from error


class HostedCollection:
    """A configured collection, open or not.

    If a dependency is missing (a Milvus that starts later, a corpus that is still being copied), opening is retried
    until the service stops.

    Args:
        worker: the thread that opens, searches and closes the collection.
        leaving: set when the service stops; no index is built after that.
    """

    def __init__(
        self, spec: CollectionSpec, service: ServiceSpec, metrics: Metrics, worker: Executor, leaving: threading.Event
    ) -> None:
        self.spec = spec
        self.status = Status(status="loading", detail=f"collection {spec.name}: it is being opened")
        self.tried = False
        """True after the first attempt to open it, successful or not."""
        self._service, self._metrics, self._worker, self._leaving = service, metrics, worker, leaving
        self._ending = asyncio.Event()
        self._collection: Collection | None = None

    def is_for(self, team: str | None) -> bool:
        return not self.spec.teams or team in self.spec.teams

    def serves(self, digest: str) -> bool:
        return self._collection is not None and self._collection.facts.corpus_digest == digest

    @property
    def is_open(self) -> bool:
        return self._collection is not None

    def collection(self) -> Collection:
        """Return the open collection.

        Raises:
            RequestError: it is not open.
        """
        if self._collection is None:
            raise later(503, self.status.status, self.status.detail)
        return self._collection

    def listed(self) -> ListedCollection:
        facts = self._collection.facts if self._collection else None
        return ListedCollection(name=self.spec.name, status=self.status, facts=facts)

    async def serve(self) -> None:
        """Open the collection, answer its searches until ``end``, and close it."""
        retriever = await self._opened()
        if retriever is None:
            return
        batcher = self._batcher(retriever)
        self._collection = Collection(_facts(self.spec, retriever), retriever, batcher)
        self.status, self.tried = Status(status="ready"), True
        if self._ending.is_set():
            batcher.close()
        await batcher.run()
        await asyncio.get_running_loop().run_in_executor(self._worker, retriever.close)

    def end(self) -> None:
        """Accept no more searches; ``serve`` returns when the queue is empty."""
        self._ending.set()
        if self._collection is not None:
            self._collection.batcher.close()

    async def _opened(self) -> IndexRetriever | None:
        """Return the retriever with a warm encoder, or None if the service stops first."""
        loop = asyncio.get_running_loop()
        pause, told = 1.0, ""
        while not self._leaving.is_set():
            try:
                return await loop.run_in_executor(self._worker, self._open)
            except ServiceStopped:
                return None
            except Exception as error:  # /readyz reports any error, and the process continues
                detail = f"collection {self.spec.name}: {error}"
                if detail != told:
                    foreseen = isinstance(error, UserError | RecordError | RetrieverFault)
                    log.error("%s; trying again", detail, exc_info=not foreseen)
                    told = detail
            self.status, self.tried = Status(status="failed", detail=detail), True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return None

    def _open(self) -> IndexRetriever:
        if contains_run(self.spec.run_dir):
            for report in open_run(self.spec.run_dir).altered:
                log.warning("collection %s: %s", self.spec.name, report)
        # Clients retry if Milvus is unavailable; the search thread does not.
        retrieval = self.spec.retrieval.model_copy(update={"patience_seconds": 0.0})
        retriever = open_retriever(
            self.spec.environment, self.spec.run_dir, retrieval, show_progress=False, watch=self._watch,
            call_seconds=min(CALL_SECONDS, self._service.deadline_seconds),
        )  # fmt: skip
        try:
            retriever.warm()
        except BaseException:
            retriever.close()
            raise
        return retriever

    def _watch(self, done: int, rows: int) -> None:
        if self._leaving.is_set():
            raise ServiceStopped
        self.status = Status(status="loading", detail=f"collection {self.spec.name}: {done} of {rows} are indexed")

    def _batcher(self, retriever: IndexRetriever) -> Batcher:
        encoding = self._metrics.encode_seconds.labels(self.spec.name)
        searching = self._metrics.search_seconds.labels(self.spec.name)

        def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
            with timed(encoding):
                queries = retriever.encode(requests)
            with timed(searching):
                return retriever.find(requests, queries, k)

        batcher = Batcher(
            search, self._worker, queue=self._service.queue, batch=self._service.batch,
            observe=self._metrics.batch.labels(self.spec.name).observe,
        )  # fmt: skip
        self._metrics.waiting.labels(self.spec.name).set_function(lambda: batcher.queries)
        return batcher


def _facts(spec: CollectionSpec, retriever: IndexRetriever) -> CollectionFacts:
    index = retriever.index
    encoder = EncoderFacts(
        name=index.encoder.name,
        digest=index.encoder.digest,
        query_prefix=index.encoder.prefixes["query"],
        passage_prefix=index.encoder.prefixes["passage"],
    )
    return CollectionFacts(
        name=spec.name,
        method=retriever.method.name,
        settings=index.settings.model_dump(mode="json"),
        corpus_digest=index.material.digest,
        encoder=encoder,
        rows=index.rows,
    )
