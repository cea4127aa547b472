"""Server process of the log service."""

from __future__ import annotations

import uvicorn
from starlette.applications import Starlette

from platform_sdk.retrieval.service.connections import KEEP_ALIVE_SECONDS, MAX_HEAD_BYTES, BoundedProtocol
from platform_sdk.retrieval.service.tls import Certificate, Renewal

CONNECTIONS = 256
GRACE_SECONDS = 10
RENEWAL_TICKS = 50  # uvicorn ticks (ten a second) between two checks of the certificate


class LogServer(uvicorn.Server):
    """Server with bounded connections. A renewed certificate is loaded without a restart."""

    def __init__(self, app: Starlette, *, bind: str, port: int, certificate: Certificate | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app, host=bind, port=port, timeout_graceful_shutdown=GRACE_SECONDS, access_log=False,
                http=BoundedProtocol, ws="none", timeout_keep_alive=KEEP_ALIVE_SECONDS,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES, limit_concurrency=CONNECTIONS + 1,
                ssl_certfile=certificate.certificate if certificate else None,
                ssl_keyfile=certificate.key if certificate else None,
            )
        )  # fmt: skip
        self._renewal: Renewal | None = None
        if certificate is not None:
            certificate.check()
            self.config.load()
            assert self.config.ssl is not None
            self._renewal = Renewal(certificate, self.config.ssl)

    async def on_tick(self, counter: int) -> bool:
        if self._renewal is not None and counter % RENEWAL_TICKS == 0:
            self._renewal.look()
        return await super().on_tick(counter)
