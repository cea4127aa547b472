"""Connections to the gateway: an idle one is closed if there are too many."""

from __future__ import annotations

import asyncio
import resource
import select
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 1024
"""Connections that a gateway accepts unless more are wanted."""


def most_connections(wanted: int) -> int:
    """Return how many connections to accept: half of the files that this process may open at most.

    The soft limit on files, often 1,024, is raised as far as the hard limit allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= 2 * wanted:
        return wanted
    raised = 2 * wanted if hard == resource.RLIM_INFINITY else min(2 * wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return raised // 2


class Connections(H11Protocol):
    """uvicorn's protocol with a bound on connections, ``config.limit_concurrency``.

    A program may open any number of connections. Above the bound, the ones that have been idle longest, without a
    request or after their answer, are closed, so that other sessions are answered. A connection with an unread request
    stays. A request is refused with status 503 if as many others as the bound are in progress.
    """

    _silent: dict[Connections, None] = {}  # noqa: RUF012, in order; of one server, since each gateway has a subclass

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._make_room()
        self._silent[self] = None

    def _make_room(self) -> None:
        """Close idle connections above the bound, the one idle longest first."""
        while len(self.connections) >= self._bound():
            oldest = next((each for each in self._silent if not each._has_sent()), None)
            if oldest is None:
                break
            del self._silent[oldest]
            self.connections.discard(oldest)
            oldest.transport.close()

    def _bound(self) -> int:
        return self.config.limit_concurrency or 1

    def _has_sent(self) -> bool:
        """Return True if there is something to read."""
        poll = select.poll()  # select itself takes no descriptor above 1023
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_idle():
            self._make_room()
        else:
            self._silent.pop(self, None)

    def handle_events(self) -> None:
        # uvicorn compares the limit with all connections. In a burst, many are open whose data are still unread; only
        # those with a request in progress may lead to a refusal.
        self.limit_concurrency = self._bound() + len(self._silent)
        super().handle_events()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_idle() and not self.transport.is_closing():
            self._silent[self] = None

    def _is_idle(self) -> bool:
        """Return True if no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._silent.pop(self, None)
        super().connection_lost(exc)


def protocol() -> type[Any]:
    """Return the protocol of one server."""
    return type("Connections", (Connections,), {"_silent": {}})
