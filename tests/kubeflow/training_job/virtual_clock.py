"""Clock whose time passes only when a launcher sleeps or waits for events."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from platform_sdk.kubeflow.training_job.watch import END, Event
from tests.kubeflow.training_job.api_server import ApiServer

BEGIN = 1_800_000_000.0


class VirtualClock:
    """Time that passes only when somebody waits; ``at`` plans what the cluster does meanwhile."""

    def __init__(self, server: ApiServer) -> None:
        self._server, self._now = server, BEGIN
        self._planned: list[tuple[float, int, Callable[[], None]]] = []

    def time(self) -> float:
        return self._now

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Let ``action`` happen ``seconds`` after the clock was made."""
        self._planned.append((BEGIN + seconds, len(self._planned), action))
        self._planned.sort(key=lambda entry: entry[:2])

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Let ``action`` happen ``seconds`` from now."""
        self.at(self._now - BEGIN + seconds, action)

    def sleep(self, seconds: float) -> None:
        until = self._now + seconds
        while self._planned and self._planned[0][0] <= until:
            self._now, _, action = self._planned.pop(0)
            action()
        self._now = max(self._now, until)

    def receive(self, events: SimpleQueue[Event], seconds: float, streams: int) -> list[Event]:
        """Return the events of what happened already, else of the next planned action."""
        received = self._flushed(events, streams)
        if any(event.type != "BOOKMARK" for event in received):
            return received
        until = self._now + seconds
        self.sleep(min(until, max(self._planned[0][0], self._now) if self._planned else until) - self._now)
        return self._flushed(events, streams)

    def _flushed(self, events: SimpleQueue[Event], streams: int) -> list[Event]:
        version, received = self._server.watches.flush(), list[Event]()
        while streams:
            event = events.get(timeout=30)
            received.append(event)
            streams -= event.type == END or (
                event.type == "BOOKMARK" and event.item["metadata"]["resourceVersion"] == version
            )
        return received
