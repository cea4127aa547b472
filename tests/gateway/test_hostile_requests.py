"""Half-sent and unread requests, huge heads, ended sessions: each is bounded, and other sessions are answered."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from threading import Event, Thread
from urllib.parse import urlsplit

import httpx
import pytest

from platform_sdk.gateway import bodies
from platform_sdk.gateway.events import Bounds, CompletionAsked
from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from platform_sdk.sampling.awaiting import Inbox
from platform_sdk.sampling.engine import Completion, SamplingParams
from tests.gateway.templates import tokenizer

CONNECTIONS = 64


@contextmanager
def answered(session: Session, text: str = "Ida Roth") -> Iterator[None]:
    """Answer a session's completions with a text until the context ends."""
    ids = tuple(tokenizer("qwen2_5")(text, add_special_tokens=False)["input_ids"])
    wakes: SimpleQueue[Inbox | None] = SimpleQueue()
    session.inbox.listen(wakes.put)

    def answer() -> None:
        while (inbox := wakes.get()) is not None:
            event = inbox.take()
            assert isinstance(event, CompletionAsked)
            session.completed(event, Completion(event.id, ids, (-0.5,) * len(ids), "length"))

    thread = Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        wakes.put(None)
        thread.join()


@pytest.fixture
def small() -> Iterator[Gateway]:
    """A gateway with few connections."""
    with Gateway(tokenizer("qwen2_5"), 4096, SamplingParams(), connections=CONNECTIONS) as gateway:
        yield gateway


@pytest.fixture
def attacker(small: Gateway) -> Session:
    return small.open(seed=0, name="attacker", bounds=Bounds(concurrent=4))


@pytest.fixture
def honest(small: Gateway) -> Session:
    return small.open(seed=1, name="honest")


def raw(session: Session, data: bytes) -> socket.socket:
    address = urlsplit(session.base_url)
    assert address.hostname is not None
    connection = socket.create_connection((address.hostname, address.port or 0), 30)
    connection.sendall(data)
    return connection


def post(url: str, body: bytes, length: int) -> bytes:
    return f"POST {urlsplit(url).path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode() + body


def is_answered(session: Session) -> bool:
    return httpx.get(f"{session.base_url}/models", timeout=30).status_code == 200


def chat(session: Session, **more: object) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": "Who?"}], **more}
    return httpx.post(f"{session.base_url}/chat/completions", json=body, timeout=30)


def test_half_sent_requests_keep_no_other_session_from_answers(attacker: Session, honest: Session) -> None:
    with ExitStack() as held:
        for number in range(5 * CONNECTIONS):
            whole = post(f"{attacker.base_url}/chat/completions", b'{"messages":', 1000)
            held.enter_context(raw(attacker, whole[: 20 if number % 3 else len(whole)]))
        assert is_answered(honest)


def test_burst_of_half_sent_requests_keeps_no_other_session_from_answers(
    small: Gateway, attacker: Session, honest: Session
) -> None:
    """The server finds all connections at once, none of them read."""
    connected, replies = Event(), list[int]()
    with httpx.Client(timeout=30) as client, ExitStack() as held:
        assert client.get(f"{honest.base_url}/models").status_code == 200
        small._server.servers[0].get_loop().call_soon_threadsafe(connected.wait, 30)
        for number in range(2 * CONNECTIONS):
            whole = post(f"{attacker.base_url}/chat/completions", b'{"messages":', 1000)
            held.enter_context(raw(attacker, whole[: 20 if number % 3 else len(whole)]))
        with raw(honest, f"GET {urlsplit(honest.base_url).path}/models HTTP/1.1\r\nHost: x\r\n\r\n".encode()) as late:
            kept = Thread(target=lambda: replies.append(client.get(f"{honest.base_url}/models").status_code))
            kept.start()
            connected.set()
            assert late.recv(65536).startswith(b"HTTP/1.1 200 ")
            kept.join()
    assert replies == [200]


def test_more_requests_in_progress_than_the_bound_are_refused(small: Gateway, honest: Session) -> None:
    busy = small.open(seed=0, name="busy", bounds=Bounds(concurrent=2 * CONNECTIONS))
    body = b'{"messages": [{"role": "user", "content": "Who?"}]}'
    with ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(raw(busy, post(f"{busy.base_url}/chat/completions", body, len(body))))
        statuses = (httpx.get(f"{honest.base_url}/models", timeout=30).status_code for _ in range(100))
        assert 503 in statuses, "the server may take the first ones before all requests are read"
    assert is_answered(honest), "once they have gone"


def test_half_sent_body_is_refused_in_time(attacker: Session, honest: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.2)
    for url in (f"{attacker.base_url}/chat/completions", attacker.mcp_url):
        with raw(attacker, post(url, b'{"messages":', 1000)) as held:
            assert held.recv(65536).startswith(b"HTTP/1.1 408 ")
    with answered(honest):
        assert chat(honest).status_code == 200


def test_huge_head_ends_its_connection_alone(attacker: Session, honest: Session) -> None:
    head = b"GET /s/x/v1/models HTTP/1.1\r\nHost: x\r\nX-Many: " + b"a" * 5_000_000
    said = b""
    try:
        with raw(attacker, head) as held:
            said = held.recv(65536)
    except ConnectionError:
        pass
    assert said == b"" or said.startswith(b"HTTP/1.1 400 ")
    assert is_answered(honest)


def test_answered_requests_on_open_connections_keep_no_other_session_from_answers(
    attacker: Session, honest: Session
) -> None:
    head = f"GET {urlsplit(attacker.base_url).path}/models HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with ExitStack() as held:
        for _ in range(2 * CONNECTIONS):
            assert held.enter_context(raw(attacker, head)).recv(65536).startswith(b"HTTP/1.1 200 ")
        assert is_answered(honest)


def test_streams_that_nobody_reads_keep_no_other_session_from_answers(attacker: Session, honest: Session) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Who?"}], "stream": True}).encode()
    with answered(attacker, "word " * 1000), ExitStack() as held:
        for _ in range(2 * CONNECTIONS):
            connection = held.enter_context(raw(attacker, b""))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            connection.sendall(post(f"{attacker.base_url}/chat/completions", body, len(body)))
        with answered(honest):
            assert chat(honest).status_code == 200


def test_cut_response_is_recorded_and_the_session_goes_on(attacker: Session) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Who?"}], "stream": True}).encode()
    with answered(attacker):
        with raw(attacker, post(f"{attacker.base_url}/chat/completions", body, len(body))) as connection:
            connection.recv(10)
        assert chat(attacker).status_code == 200
    assert len(attacker.trajectories()) == 2, "one thread for each call of the same prompt"


def test_every_endpoint_refuses_the_token_of_an_ended_session(attacker: Session) -> None:
    attacker.close()
    assert chat(attacker).status_code == 401
    for path, body in (("completions", {"prompt": "x"}), ("responses", {"input": "x"})):
        assert httpx.post(f"{attacker.base_url}/{path}", json=body).status_code == 401
    assert httpx.get(f"{attacker.base_url}/models").status_code == 401
    assert httpx.post(attacker.search_url, json={"query": "x"}).status_code == 401
    listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    assert httpx.post(attacker.mcp_url, json=listed).status_code == 401


@pytest.mark.parametrize("depth", [300, 850, *range(955, 970, 2)])
def test_values_nested_without_end_are_refused(honest: Session, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    function = f'{{"type": "function", "function": {{"name": "f", "parameters": {{"x": {nested}}}}}}}'
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": f'{{"x": {nested}}}'}}
    said = json.dumps([{"role": "user", "content": "Who?"}, {"role": "assistant", "tool_calls": [call]}])
    with answered(honest):
        user = '{"role": "user", "content": "Who?"}'
        for body in (f'{{"messages": [{user}], "tools": [{function}]}}', f'{{"messages": {said}}}'):
            reply = httpx.post(f"{honest.base_url}/chat/completions", content=body, timeout=30)
            assert reply.status_code in (200, 400)


def test_refused_prompts_are_not_kept(attacker: Session) -> None:
    for _ in range(3):
        assert (
            chat(attacker, messages=[{"role": "user", "content": "word " * 5000}], temperature=0.1).status_code == 400
        )
    assert attacker._threads.calls == []
    assert attacker.notes == ()


def test_searches_end_at_the_bound_of_results(small: Gateway) -> None:
    session = small.open(seed=0, name="attacker", bounds=Bounds(results=10))
    session.search("Amberfall", 8)
    refused = httpx.post(session.search_url, json={"query": "Amberfall", "k": 3})
    assert (refused.status_code, session.limit) == (403, "results")
    assert "bound of 10 results" in refused.json()["error"]["message"]


def test_mcp_requests_are_bounded_in_size(small: Gateway) -> None:
    session = small.open(seed=0, name="attacker", bounds=Bounds(request_bytes=1024))
    assert httpx.post(session.mcp_url, content=b" " * 2000).status_code == 413


def test_replies_do_not_wait_for_acknowledgements(small: Gateway, honest: Session) -> None:
    """TCP_NODELAY is set: without it, each further reply on a connection takes 40 ms."""
    with httpx.Client() as client:
        assert client.get(f"{honest.base_url}/models").status_code == 200
        [connection] = small._server.server_state.connections
        own = connection.transport.get_extra_info("socket")
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
