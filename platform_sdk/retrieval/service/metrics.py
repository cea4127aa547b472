"""Metrics for Prometheus. The names are an interface: dashboards and the autoscaler read them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from platform_sdk.config.errors import UserError

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters of one service, in a separate registry.

    They include the names of collections and teams, so they are served on a separate port, not to the teams.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "hopforge_retriever_requests", "Answered requests.", ["route", "status"], registry=self.registry
        )
        self.request_seconds = Histogram(
            "hopforge_retriever_request_seconds", "Seconds from a request's first byte to its answer's last.",
            ["route"], registry=self.registry, buckets=SECONDS,
        )  # fmt: skip
        self.errors = Counter(
            "hopforge_retriever_errors", "Refused requests and queries, by the code of the refusal.",
            ["code"], registry=self.registry,
        )  # fmt: skip
        self.queries = Counter(
            "hopforge_retriever_queries", "Answered queries.", ["collection", "team"], registry=self.registry
        )
        self.waiting = Gauge(
            "hopforge_retriever_queue_queries", "Queries that wait.", ["collection"], registry=self.registry
        )
        self.batch = Histogram(
            "hopforge_retriever_batch_queries", "Queries of one joined call.", ["collection"],
            registry=self.registry, buckets=SIZES,
        )  # fmt: skip
        self.encode_seconds = Histogram(
            "hopforge_retriever_encode_seconds", "Seconds of the encoder in one joined call.", ["collection"],
            registry=self.registry, buckets=SECONDS,
        )  # fmt: skip
        self.search_seconds = Histogram(
            "hopforge_retriever_search_seconds", "Seconds of the search in one joined call.", ["collection"],
            registry=self.registry, buckets=SECONDS,
        )  # fmt: skip

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()

    def listen(self, host: str, port: int) -> int:
        """Serve the metrics on a separate port, in threads, until the process ends; return the port.

        Raises:
            UserError: the port cannot be listened on.
        """
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise UserError(f"--metrics-port: cannot listen on {host}:{port}: {error.strerror or error}") from error
        return int(server.server_port)


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observe the duration of the block, even if it fails."""
    began = time.monotonic()
    try:
        yield
    finally:
        histogram.observe(time.monotonic() - began)


class RequestCounter:
    """Counter and timer of requests by route; requests outside ``routes`` count as ``other``."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        self._app, self._metrics, self._routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route = scope["path"] if scope["path"] in self._routes else "other"
        status = 500  # an outer middleware handles exceptions

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with timed(self._metrics.request_seconds.labels(route)):
                await self._app(scope, receive, sent)
        finally:
            self._metrics.requests.labels(route, status).inc()
            refusal = scope.get("state", {}).get("refusal", "internal" if status == 500 else None)
            if refusal is not None:
                self._metrics.errors.labels(refusal).inc()
