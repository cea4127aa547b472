"""Batching of concurrent requests into one encoder call and one Milvus call.

Requests that arrive during a call are queued, and the next call takes as many as fit: batches grow under load, and an
idle service answers without delay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from platform_sdk.records import Evidence
from platform_sdk.sampling.rollout import RetrieverFault, SearchFunction, SearchRequest

log = logging.getLogger(__name__)


class QueueFull(Exception):
    """The queue limit is exceeded. ``retry_after`` is the suggested delay in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after} s")
        self.retry_after = retry_after


class BatcherClosed(Exception):
    """The service is stopping and accepts no more requests."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    requests: tuple[SearchRequest, ...]
    k: int
    answer: asyncio.Future[list[list[Evidence]]]


class Batcher:
    """Batched searches of one collection.

    Args:
        search: returns the evidence of requests that were checked; called in ``executor``, one call at a time.
        queue: the most queries that may wait.
        batch: the most queries of one call; a larger request gets a separate call.
        observe: called with the number of queries of every call.
    """

    def __init__(
        self, search: SearchFunction, executor: Executor, *, queue: int, batch: int,
        observe: Callable[[int], None] = lambda queries: None,
    ) -> None:  # fmt: skip
        self._search, self._executor, self._observe = search, executor, observe
        self._queue, self._batch = queue, batch
        self._waiting: dict[_Waiting, None] = {}  # in order of arrival
        self._awake = asyncio.Event()
        self._stopping = False
        self._seconds = 1.0  # recent duration of a call
        self.queries = 0
        """Number of waiting queries."""

    async def search(self, requests: Sequence[SearchRequest], k: int, seconds: float) -> list[list[Evidence]]:
        """Return at most ``k`` pieces of evidence for each request. Requests of a cancelled caller are dropped.

        Raises:
            QueueFull: too many queries are waiting.
            BatcherClosed: ``close`` has been called.
            TimeoutError: no answer within ``seconds``.
            RetrieverFault: a dependency of the retriever failed.
        """
        if self._stopping:
            raise BatcherClosed
        if self.queries + len(requests) > self._queue and self._waiting:
            calls = 1 + self.queries // self._batch
            raise QueueFull(max(1, round(calls * self._seconds)))
        waiting = _Waiting(tuple(requests), k, asyncio.get_running_loop().create_future())
        self._waiting[waiting] = None
        self.queries += len(waiting.requests)
        self._awake.set()
        try:
            return await asyncio.wait_for(waiting.answer, seconds)
        finally:
            self._remove(waiting)

    async def run(self) -> None:
        """Answer requests until ``close`` has been called and the queue is empty."""
        while True:
            group = self._take()
            if group:
                await self._answer(group)
            elif self._stopping:
                return
            else:
                self._awake.clear()
                await self._awake.wait()

    def close(self) -> None:
        """Accept no more requests; ``run`` returns when the queue is empty."""
        self._stopping = True
        self._awake.set()

    async def _answer(self, group: list[_Waiting]) -> None:
        requests = [request for waiting in group for request in waiting.requests]
        began = time.monotonic()
        try:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._executor, self._search, requests, group[0].k)
        except Exception as error:
            log.warning("a search of %d queries failed: %s: %s", len(requests), type(error).__name__, error)
            if len(group) > 1 and not isinstance(error, RetrieverFault):  # a single request may be at fault
                for waiting in group:
                    await self._answer([waiting])
                return
            for waiting in group:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
        else:
            results = iter(found)
            for waiting in group:
                own = [next(results) for _ in waiting.requests]
                if not waiting.answer.done():
                    waiting.answer.set_result(own)
        self._seconds = 0.8 * self._seconds + 0.2 * (time.monotonic() - began)
        self._observe(len(requests))

    def _take(self) -> list[_Waiting]:
        """Take the next batch: the request that waits longest, and later ones with the same ``k``."""
        group: list[_Waiting] = []
        size = 0
        for waiting in self._waiting:
            if waiting.answer.done() or (group and waiting.k != group[0].k):
                continue
            if group and size + len(waiting.requests) > self._batch:
                break
            group.append(waiting)
            size += len(waiting.requests)
        for waiting in group:
            self._remove(waiting)
        return group

    def _remove(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            del self._waiting[waiting]
            self.queries -= len(waiting.requests)
