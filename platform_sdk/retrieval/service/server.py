"""Server process with graceful shutdown."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from platform_sdk.retrieval.service.connections import KEEP_ALIVE_SECONDS, MAX_HEAD_BYTES, BoundedProtocol
from platform_sdk.retrieval.service.hosting import Host
from platform_sdk.retrieval.service.tls import Certificate, Renewal

GRACE_SECONDS = 60  # for requests in progress
RENEWAL_TICKS = 50  # uvicorn ticks (ten a second) between two checks of the certificate


class Server(uvicorn.Server):
    """Server that stops gracefully: after the first signal it reports not ready, accepts searches for ``drain`` seconds
    more, answers the accepted ones and exits. After a second signal it accepts no more searches."""

    def __init__(
        self, app: FastAPI, *, bind: str = "127.0.0.1", port: int, connections: int, drain: float = 0.0,
        certificate: Certificate | None = None, log_level: str = "info",
    ) -> None:  # fmt: skip
        super().__init__(
            uvicorn.Config(
                app, host=bind, port=port, timeout_graceful_shutdown=GRACE_SECONDS, log_level=log_level,
                access_log=False, http=BoundedProtocol, ws="none", timeout_keep_alive=KEEP_ALIVE_SECONDS,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES, limit_concurrency=connections + 1,
                ssl_certfile=certificate.certificate if certificate else None,
                ssl_keyfile=certificate.key if certificate else None,
            )
        )  # fmt: skip
        if certificate is not None:
            certificate.check()
            self.config.load()
            assert self.config.ssl is not None
            self._renewal: Renewal | None = Renewal(certificate, self.config.ssl)
        else:
            self._renewal = None
        self._host: Host = app.state.host
        self._drain = drain
        self._told: int | None = None  # by which signal
        self._leaving: tuple[int, float] | None = None  # the signal, and until when searches are taken

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        finally:
            if self._host.abandoned or self.force_exit:
                # Otherwise Python waits for threads that cannot be stopped. Their files survive this like a kill.
                logging.shutdown()
                os._exit(128 + (self._told or signal.SIGTERM))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._host.leave()
        self._told = sig
        if self._leaving is None and self._drain and sig == signal.SIGTERM:
            self._leaving = (sig, time.monotonic() + self._drain)
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if self._renewal is not None and counter % RENEWAL_TICKS == 0:
            self._renewal.look()
        if self._leaving is not None and time.monotonic() >= self._leaving[1] and not self.should_exit:
            super().handle_exit(self._leaving[0], None)
        return await super().on_tick(counter)
