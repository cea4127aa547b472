"""Slow, idle and ambiguous connections, over raw sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from platform_sdk.config.service import CollectionSpec, ServiceSpec
from tests.process_watch import wait_for
from tests.retrieval.processes import STARTED_WITHIN, served

CONNECTIONS = 8
SEARCH = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A service whose only collection cannot be opened, with short limits."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("HEAD_SECONDS", "REST_SECONDS"):
            patch.setattr(f"platform_sdk.retrieval.service.connections.{limit}", 0.3)
        patch.setattr("platform_sdk.retrieval.service.server.KEEP_ALIVE_SECONDS", 1)
        patch.setattr("platform_sdk.retrieval.service.app.BODY_SECONDS", 0.3)
        absent = CollectionSpec(name="absent", run_dir=Path("/absent"), environment="world-text")
        with served(ServiceSpec(collections=(absent,), connections=CONNECTIONS), ready=False) as address:
            yield address


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), STARTED_WITHIN) as connection:
        yield connection


def until_closed(connection: socket.socket) -> bytes:
    """Return what is received until the other side closes; a time-out fails the test."""
    received = b""
    try:
        while chunk := connection.recv(65_536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200"),  # and idle afterwards
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /heal", b"HTTP/1.1 200"),
        (SEARCH + b"Content-Length: 100\r\n\r\n{", b"HTTP/1.1 408"),
        (b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", b"HTTP/1.1 404"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 70_000, b"HTTP/1.1 400"),
    ],
    ids=["silent", "slow head", "idle", "slow second head", "slow body", "slow refused body", "long head"],
)
def test_connection_that_sends_nothing_more_is_closed(url: str, sent: bytes, status: bytes) -> None:
    with connected(url) as connection:
        connection.sendall(sent)
        received = until_closed(connection)
    assert received.startswith(status)
    assert bool(received) == bool(status)


def test_trickling_bytes_do_not_keep_a_connection_open(url: str) -> None:
    with connected(url) as connection:
        connection.settimeout(0.05)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")

        def closed() -> bool:
            try:
                connection.sendall(b"x")
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_for(closed)


@pytest.mark.parametrize("coding", [b"chunked", b"CHUNKED"])
def test_request_with_two_lengths_is_refused_and_the_connection_closed(url: str, coding: bytes) -> None:
    with connected(url) as connection:
        lengths = b"Content-Length: 5\r\nTransfer-Encoding: " + coding + b"\r\n\r\n0\r\n\r\n"
        connection.sendall(SEARCH + lengths + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        received = until_closed(connection)
    assert received.startswith(b"HTTP/1.1 400")
    assert b"two_lengths" in received
    assert received.count(b"HTTP/1.1") == 1  # what follows is no request


def test_connections_beyond_the_bound_are_closed_and_the_others_served(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform_sdk.retrieval.service.connections.HEAD_SECONDS", STARTED_WITHIN)
    wait_for(lambda: answers(url))  # the connections of other tests are gone
    held = [socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) for _ in range(CONNECTIONS)]
    try:
        wait_for(lambda: not answers(url))
        held[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert until_closed(held[0]).startswith(b"HTTP/1.1 200")
    finally:
        for connection in held:
            connection.close()
    wait_for(lambda: answers(url))


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", verify=False).status_code == 200
    except httpx.TransportError:
        return False
