"""Concurrent requests as one encoder and one Milvus call.

While a call is at work requests gather, and the next call takes as many as fit: under load batches grow by
themselves, and at rest no request waits.
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
    """More queries wait than may. ``retry_after`` is when there may be room, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after} s")
        self.retry_after = retry_after


class BatcherClosed(Exception):
    """The service is about to end and takes nothing new."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    requests: tuple[SearchRequest, ...]
    k: int
    answer: asyncio.Future[list[list[Evidence]]]


class Batcher:
    """Answers the searches of one collection, joined.

    Args:
        search: ``retriever.search``; called in ``executor``, one call at a time.
        queue: the most queries that may wait.
        batch: the most queries of one call; a request with more is a call of its own.
        observe: called with the number of queries of every call.
    """

    def __init__(
        self, search: SearchFunction, executor: Executor, *, queue: int, batch: int,
        observe: Callable[[int], None] = lambda queries: None,
    ) -> None:  # fmt: skip
        self._search, self._executor, self._observe = search, executor, observe
        self._queue, self._batch = queue, batch
        self._waiting: dict[_Waiting, None] = {}  # in the order of their arrival
        self._awake = asyncio.Event()
        self._stopping = False
        self._seconds = 1.0  # of a call, lately
        self.queries = 0
        """Number of waiting queries."""

    async def search(self, requests: Sequence[SearchRequest], k: int, seconds: float) -> list[list[Evidence]]:
        """Return at most ``k`` pieces of evidence for each request. A cancelled caller is not searched for.

        Raises:
            QueueFull: too many queries wait already.
            BatcherClosed: ``close`` has been called.
            TimeoutError: no answer within ``seconds``.
            RetrieverFault: what the retriever rests on failed.
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
        """Answer until ``close`` has been called and nothing waits."""
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
        """Take nothing new; ``run`` ends when what waits is answered."""
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
            if len(group) > 1 and not isinstance(error, RetrieverFault):  # one of them is at fault, not all
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
        """The next requests that go together: the one that waits longest, and those after it with its ``k``."""
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
