"""Bounds in time and number on connections of slow or silent clients."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # from the connection, or the first byte of a further request, to the end of its headers
REST_SECONDS = 10.0  # for the rest of a body after an early response
KEEP_ALIVE_SECONDS = 15  # between two requests
MAX_HEAD_BYTES = 32_768


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with bounds that uvicorn's protocol lacks.

    uvicorn bounds the pause between two requests (``timeout_keep_alive``) and the length of headers. It waits without
    limit for a first byte, for slow headers and for the rest of a refused body; and above ``limit_concurrency`` it
    responds with 503 but keeps the connection. This protocol closes the connection in all these cases.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            transport.abort()
        else:
            self._expect_within(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.conn.their_state
        if before is h11.IDLE and self._deadline is None:  # the next request begins
            self._expect_within(HEAD_SECONDS)
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if before is not h11.IDLE:  # end of a body after an early response
                self._expect_within(HEAD_SECONDS)
        elif not self._answered_early:
            self._expect_nothing()  # the application bounds how long it reads a body

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._answered_early:
            self._expect_within(REST_SECONDS)

    @property
    def _answered_early(self) -> bool:
        """True if the response was sent while the body is still arriving; it is discarded."""
        return self.conn.their_state is h11.SEND_BODY and self.cycle is not None and self.cycle.response_complete

    def _expect_within(self, seconds: float) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
