"""Events that threads put into inboxes, and agents of the rollout loop that wait for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Inbox:
    """Events of one source in their order. Any thread may put an event; the rollout loop takes them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._events: deque[Any] = deque()
        self._notify: Callable[[Inbox], None] | None = None

    def put(self, event: Any) -> None:
        """Add an event, and notify the loop that waits for one."""
        with self._lock:
            self._events.append(event)
            notify = self._notify
        if notify is not None:
            notify(self)

    def take(self) -> Any | None:
        """Remove and return the first event; None if there is none."""
        with self._lock:
            return self._events.popleft() if self._events else None

    def listen(self, notify: Callable[[Inbox], None] | None) -> None:
        """Call ``notify`` after each further event; None ends this."""
        with self._lock:
            self._notify = notify


@dataclass(frozen=True)
class Await:
    """Wait for the next event of ``source``; answered with the event.

    If several agents wait for one source, each event goes to the agent that has waited longest. Events put before the
    agent waits are kept.
    """

    source: Inbox


class Arrivals(Generic[T]):
    """Waiters by inbox, and the queue through which inboxes wake the loop.

    ``ended`` counts the background calls that announced their end and whose results the loop has not taken yet; it is
    negative for a short time if a result was taken before its announcement.
    """

    def __init__(self) -> None:
        self.awaited: dict[Inbox, deque[T]] = {}
        self.ended = 0
        self._wakes: SimpleQueue[Inbox | None] = SimpleQueue()

    def add(self, inbox: Inbox, waiter: T) -> None:
        """Register a waiter; events that the inbox has already are found by the next ``take``."""
        self.awaited.setdefault(inbox, deque()).append(waiter)
        inbox.listen(self._wakes.put)
        self._wakes.put(inbox)

    def announced(self, work: Callable[[], R]) -> Callable[[], R]:
        """Return ``work`` with an announcement of its end, which wakes the loop."""

        def run() -> R:
            try:
                return work()
            finally:
                self._wakes.put(None)

        return run

    def take(self, wait: bool) -> list[tuple[T, Any]]:
        """Return waiters with their events; with ``wait`` block until an event or an ended background call."""
        answers: list[tuple[T, Any]] = []
        while True:
            try:
                inbox = self._wakes.get(block=wait and not answers and self.ended <= 0)
            except Empty:
                return answers
            if inbox is None:
                self.ended += 1
                continue
            answers += self._answers(inbox)

    def _answers(self, inbox: Inbox) -> list[tuple[T, Any]]:
        answers = []
        waiters = self.awaited.get(inbox, deque())
        while waiters and (event := inbox.take()) is not None:
            answers.append((waiters.popleft(), event))
        if not waiters:
            self.awaited.pop(inbox, None)
        return answers

    def forget(self, cancelled: Callable[[T], bool]) -> None:
        """Remove cancelled waiters."""
        for inbox, waiters in list(self.awaited.items()):
            kept = deque(waiter for waiter in waiters if not cancelled(waiter))
            if kept:
                self.awaited[inbox] = kept
            else:
                del self.awaited[inbox]
                inbox.listen(None)

    def close(self) -> None:
        """Stop listening to all inboxes."""
        self.forget(lambda _: True)
