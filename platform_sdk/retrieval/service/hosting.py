"""The collections of a service, from the opening of the first to the closing of the last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from platform_sdk.config.errors import UserError
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.records import Evidence, RecordError
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.search import IndexRetriever
from platform_sdk.retrieval.service.batching import Batcher, Full, Stopping
from platform_sdk.retrieval.service.metrics import Metrics, timed
from platform_sdk.retrieval.service.refusals import Refused, later
from platform_sdk.retrieval.service.wire import CollectionFacts, Status
from platform_sdk.sampling.rollout import RetrieverFault, SearchRequest

log = logging.getLogger(__name__)

LONGEST_PAUSE = 30.0  # seconds between two tries to open a collection


@dataclass
class Collection:
    """An open collection."""

    spec: CollectionSpec
    retriever: IndexRetriever
    batcher: Batcher

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def digest(self) -> str:
        return self.retriever.corpus_digest

    def is_for(self, team: str | None) -> bool:
        return not self.spec.teams or team in self.spec.teams

    def facts(self) -> CollectionFacts:
        return CollectionFacts(
            name=self.name,
            environment=self.spec.environment,
            corpus_digest=self.digest,
            encoder=self.spec.retrieval.encoder,
            encoder_digest=self.retriever.encoder_digest,
            rows=self.retriever.rows,
        )

    async def search(self, requests: Sequence[SearchRequest], k: int, seconds: float) -> list[list[Evidence]]:
        """Joined with others.

        Raises:
            Refused: the queue is full, the deadline has passed, the service ends, or what it rests on is away.
        """
        try:
            return await self.batcher.search(requests, k, seconds)
        except Full as full:
            raise later(429, "queue_full", str(full), full.retry_after) from full
        except Stopping as error:
            raise later(503, "stopping", "the service is about to end") from error
        except TimeoutError as error:
            raise Refused(504, "deadline", f"no answer within {seconds:g} s") from error
        except RetrieverFault as error:
            raise later(503, "retriever_fault", str(error)) from error


class Host:
    """Opens the collections, and says how far it is.

    They share one worker thread, since an embedded Milvus bears no more. What a collection needs and is not there
    (a Milvus that starts later, a corpus that is still copied) is tried again until the service is told to end.
    """

    def __init__(self, spec: ServiceSpec, metrics: Metrics) -> None:
        self._spec, self._metrics = spec, metrics
        self._collections: dict[str, Collection] = {}
        self._status = Status(status="loading", detail="the collections are being opened")
        self._ending = asyncio.Event()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="retriever")

    @property
    def status(self) -> Status:
        return self._status

    def leave(self) -> None:
        """Be ready no longer; what still comes is answered."""
        self._status = Status(status="stopping", detail="the service is about to end")

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While it is open the collections are opened and searched; then what waits is answered."""
        living = asyncio.create_task(self._live())
        yield
        self.leave()
        self._ending.set()
        await living
        self._worker.shutdown(wait=True)

    def collection(self, name: str | None, team: str | None) -> Collection:
        """The collection that a request names.

        Raises:
            Refused: it is not open yet, there is none of that name, or the team may not search it.
        """
        collections = self._all()
        if name is None and len(collections) > 1:
            raise Refused(400, "collection_missing", f"name a collection: {', '.join(collections)}")
        found = collections.get(name) if name is not None else next(iter(collections.values()))
        if found is None:
            raise Refused(404, "no_such_collection", f"there is no collection {name!r}")
        if not found.is_for(team):
            raise Refused(403, "not_yours", f"collection {found.name} is not for this team")
        return found

    def collections_of(self, team: str | None) -> list[Collection]:
        """Those that the team may search.

        Raises:
            Refused: they are not open yet.
        """
        return [collection for collection in self._all().values() if collection.is_for(team)]

    def serves(self, digest: str) -> bool:
        return any(collection.digest == digest for collection in self._collections.values())

    def _all(self) -> dict[str, Collection]:
        if len(self._collections) < len(self._spec.collections):
            raise later(503, self._status.status, self._status.detail)
        return self._collections

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            for spec in self._spec.collections:
                retriever = await self._opened(spec)
                if retriever is None:
                    break
                collection = Collection(spec, retriever, self._batcher(spec, retriever))
                self._collections[spec.name] = collection
                tasks.create_task(collection.batcher.run())
            else:
                if not self._ending.is_set():
                    self._status = Status(status="ready")
            await self._ending.wait()
            for collection in self._collections.values():
                collection.batcher.close()
        for collection in self._collections.values():
            await loop.run_in_executor(self._worker, collection.retriever.close)

    async def _opened(self, spec: CollectionSpec) -> IndexRetriever | None:
        """The retriever of a collection, its encoder warm; None if the service was told to end before."""
        loop = asyncio.get_running_loop()
        pause, told = 1.0, ""
        while not self._ending.is_set():
            try:
                return await loop.run_in_executor(self._worker, _open_warm, spec)
            except Exception as error:  # whatever it is, /readyz tells it and the process lives
                detail = f"collection {spec.name}: {error}"
                if detail != told:
                    foreseen = isinstance(error, UserError | RecordError | RetrieverFault)
                    log.error("%s; trying again", detail, exc_info=not foreseen)
                    told = detail
            self._status = Status(status="failed", detail=detail)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return None

    def _batcher(self, spec: CollectionSpec, retriever: IndexRetriever) -> Batcher:
        encoding = self._metrics.encode_seconds.labels(spec.name)
        searching = self._metrics.search_seconds.labels(spec.name)

        def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
            with timed(encoding):
                queries = retriever.encode(requests)
            with timed(searching):
                return retriever.find(requests, queries, k)

        batcher = Batcher(
            search, self._worker, queue=self._spec.queue, batch=self._spec.batch,
            observe=self._metrics.batch.labels(spec.name).observe,
        )  # fmt: skip
        self._metrics.waiting.labels(spec.name).set_function(lambda: batcher.queries)
        return batcher


def _open_warm(spec: CollectionSpec) -> IndexRetriever:
    # The clients wait for a Milvus that is away, not the one thread that searches for all.
    retrieval = spec.retrieval.model_copy(update={"patience_seconds": 0.0})
    retriever = open_retriever(spec.environment, spec.run_dir, retrieval, show_progress=False)
    try:
        retriever.warm()
    except BaseException:
        retriever.close()
        raise
    return retriever
