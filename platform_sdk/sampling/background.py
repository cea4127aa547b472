"""Calls of tools in the background, while the engine samples."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class BackgroundCalls(Protocol[T]):
    """Makes calls in the background; ``T`` is the result of one."""

    def begin(self, work: Callable[[], T]) -> None:
        """Start a call."""

    def finished(self, wait: bool) -> list[T]:
        """Return the results since the last time; with ``wait`` at least one, if a call was started."""

    def close(self) -> None:
        """Start no further call."""


class ThreadedCalls(Generic[T]):
    """Calls in threads, since a service answers many at a time."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "tool")
        self._running: set[Future[T]] = set()

    def begin(self, work: Callable[[], T]) -> None:
        self._running.add(self._pool.submit(work))

    def finished(self, wait: bool) -> list[T]:
        done, self._running = wait_for(self._running, None if wait else 0, FIRST_COMPLETED)
        return [future.result() for future in done]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
