"""Searches beside the sampling."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Searches(Protocol[T]):
    """Does searches while others are sampled; ``T`` is what one finds."""

    def begin(self, work: Callable[[], T]) -> None:
        """Take on a search."""

    def finished(self, wait: bool) -> list[T]:
        """Return what has ended since this was last asked; with ``wait`` at least one, if one was begun."""

    def close(self) -> None:
        """Begin nothing more."""


class ThreadedSearches(Generic[T]):
    """Searches in threads, as a retriever service answers many at a time."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "search")
        self._running: set[Future[T]] = set()

    def begin(self, work: Callable[[], T]) -> None:
        self._running.add(self._pool.submit(work))

    def finished(self, wait: bool) -> list[T]:
        done, self._running = wait_for(self._running, None if wait else 0, FIRST_COMPLETED)
        return [future.result() for future in done]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
