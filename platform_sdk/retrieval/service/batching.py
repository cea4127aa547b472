"""Concurrent requests as one encoder and one Milvus call.

While a call is at work requests gather, and the next call takes as many as fit: under load batches grow by
themselves, and at rest nobody waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from platform_sdk.records import Evidence
from platform_sdk.sampling.rollout import SearchFunction, SearchRequest

log = logging.getLogger(__name__)


class Full(Exception):
    """More queries wait than may. ``retry_after`` is when there may be room, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after} s")
        self.retry_after = retry_after


class Stopping(Exception):
    """The service is about to end and takes nothing new."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    requests: tuple[SearchRequest, ...]
    k: int
    until: float
    answer: asyncio.Future[list[list[Evidence]]]


class Batcher:
    """Answers the searches of one collection, joined.

    Args:
        search: ``retriever.search``; called in ``executor``, one call at a time.
        queue: the most queries that may wait.
        batch: the most queries of one call; a request with more is a call of its own.
        observe: told the number of queries and the seconds of every call.
    """

    def __init__(
        self, search: SearchFunction, executor: Executor, *, queue: int, batch: int,
        observe: Callable[[int, float], None] = lambda queries, seconds: None,
    ) -> None:  # fmt: skip
        self._search, self._executor, self._observe = search, executor, observe
        self._queue, self._batch = queue, batch
        self._waiting: deque[_Waiting] = deque()
        self._awake = asyncio.Event()
        self._stopping = False
        self._seconds = 1.0  # of a call, lately

    @property
    def queries(self) -> int:
        """How many queries wait."""
        return sum(len(waiting.requests) for waiting in self._waiting)

    async def search(self, requests: Sequence[SearchRequest], k: int, seconds: float) -> list[list[Evidence]]:
        """At most ``k`` pieces of evidence for each request.

        Raises:
            Full: too many queries wait already.
            Stopping: ``close`` has been called.
            TimeoutError: no answer within ``seconds``.
            RetrieverFault: what the retriever rests on failed.
        """
        if self._stopping:
            raise Stopping
        if self.queries + len(requests) > self._queue and self._waiting:
            calls = 1 + self.queries // self._batch
            raise Full(max(1, round(calls * self._seconds)))
        loop = asyncio.get_running_loop()
        waiting = _Waiting(tuple(requests), k, time.monotonic() + seconds, loop.create_future())
        self._waiting.append(waiting)
        self._awake.set()
        return await asyncio.wait_for(waiting.answer, seconds)

    async def run(self) -> None:
        """Answer until ``close`` has been called and nothing waits."""
        loop = asyncio.get_running_loop()
        while True:
            group = self._take()
            if not group:
                if self._stopping:
                    return
                self._awake.clear()
                await self._awake.wait()
                continue
            requests = [request for waiting in group for request in waiting.requests]
            began = time.monotonic()
            try:
                found = await loop.run_in_executor(self._executor, self._search, requests, group[0].k)
            except Exception as error:  # every caller hears of it, and the next call is made
                log.warning("a search of %d queries failed: %s: %s", len(requests), type(error).__name__, error)
                for waiting in group:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(error)
            else:
                results = iter(found)
                for waiting in group:
                    own = [next(results) for _ in waiting.requests]
                    if not waiting.answer.done():
                        waiting.answer.set_result(own)
            seconds = time.monotonic() - began
            self._seconds = 0.8 * self._seconds + 0.2 * seconds
            self._observe(len(requests), seconds)

    def close(self) -> None:
        """Take nothing new; ``run`` ends when what waits is answered."""
        self._stopping = True
        self._awake.set()

    def _take(self) -> list[_Waiting]:
        """The next requests that go together: those at the front with one ``k``, whose callers still wait."""
        group: list[_Waiting] = []
        size = 0
        while self._waiting:
            first = self._waiting[0]
            if first.answer.done() or time.monotonic() > first.until:
                self._waiting.popleft()
                continue
            if group and (first.k != group[0].k or size + len(first.requests) > self._batch):
                break
            group.append(self._waiting.popleft())
            size += len(first.requests)
        return group
