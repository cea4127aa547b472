"""The embeddings endpoint, against a small HTTP server on this machine."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Iterator

import numpy as np
import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.retrieval.load import load_encoder
from platform_sdk.sampling.rollout import RetrieverFault
from tests.http_server import HttpRequest, HttpResponse, HttpServer

KEY = "sk-very-secret"


def vector(text: str) -> list[float]:
    """Return a vector that is not of length 1, and different for different texts."""
    return [float(len(text)), float(sum(map(ord, text)) % 97), 3.0]


class Server(HttpServer):
    """Answers ``/v1/embeddings`` in reverse order; refuses as often as ``refusals`` says."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.requests: list[dict[str, object]] = []
        self.keys: list[str] = []
        self.refusals: list[int] = []
        self.drop = 0
        self.name = f"openai:some-model@{self.url}/v1"

    def answer(self, request: HttpRequest) -> HttpResponse:
        body = request.json()
        with self.lock:
            self.keys.append(str(request.headers["Authorization"]))
            status = self.refusals.pop(0) if self.refusals else 200
            if status == 200:
                self.requests.append(body)
        if status != 200:
            return status, {"error": {"message": f"no, {KEY}"}}, {"Retry-After-Ms": "10"} if status == 429 else {}
        data = [
            {"object": "embedding", "index": at, "embedding": vector(text)} for at, text in enumerate(body["input"])
        ]
        answer = {"object": "list", "model": body["model"], "data": data[::-1][self.drop :], "usage": {}}
        return 200 if request.path == "/v1/embeddings" else 404, answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Server() as server:
        yield server


def test_texts_go_in_batches_and_come_back_in_order_with_length_1(server: Server) -> None:
    encoder = load_encoder(server.name, batch_size=4, passage_prefix="p: ")
    texts = [f"text {'x' * at}" for at in range(10)]
    found = encoder.encode(texts, kind="passage")
    expected = np.array([vector(f"p: {text}") for text in texts])
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)
    assert encoder.dimension == 3
    sizes = sorted(len(request["input"]) for request in server.requests[1:])  # type: ignore[arg-type]
    assert sizes == [2, 4, 4]
    assert {request["model"] for request in server.requests} == {"some-model"}
    assert set(server.keys) == {f"Bearer {KEY}"}


def test_refusals_that_may_pass_are_retried(server: Server) -> None:
    encoder = load_encoder(server.name)
    server.refusals = [429, 503, 429]
    assert encoder.encode(["a"], kind="query").shape == (1, 3)
    assert server.refusals == []


def test_a_lasting_refusal_is_a_fault_and_the_key_is_never_shown(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    encoder = load_encoder(server.name)
    server.refusals = [401]
    with pytest.raises(RetrieverFault, match=r"AuthenticationError: Error code: 401 .*no, \*\*\*") as fault:
        encoder.encode(["a"], kind="query")
    assert KEY not in "".join(traceback.format_exception(fault.value))
    assert KEY not in caplog.text
    server.refusals = [401]
    with pytest.raises(UserError, match="check the address, the model's name and the key in OPENAI_API_KEY") as error:
        load_encoder(server.name)
    assert KEY not in "".join(traceback.format_exception(error.value))


def test_missing_vectors_are_a_fault(server: Server) -> None:
    encoder = load_encoder(server.name)
    server.drop = 1
    with pytest.raises(RetrieverFault, match="1 vectors returned for 2 texts"):
        encoder.encode(["a", "b"], kind="query")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"<html>", b"\xff", b"null", b"[]", b"5", b'{"data": null}', b'{"data": []}', b'{"data": [5]}',
        b'{"data": [{"index": 0, "embedding": null}]}', b'{"data": [{"index": 0, "embedding": ["x"]}]}',
        b'{"data": [{"index": null, "embedding": [1]}]}', b'{"data": [{"index": 0, "embedding": []}]}',
        b'{"data": [{"index": 0, "embedding": [1e999]}]}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_response_without_embeddings_is_one_error(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with HttpServer(lambda _: (200, body)) as server, pytest.raises(UserError, match=r"^encoder openai:m@.*; check"):
        load_encoder(f"openai:m@{server.url}/v1")


def test_encoder_that_cannot_be_opened_is_one_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^encoder openai:m@http://h:abc/v1: .*Invalid port.*; correct the URL"):
        load_encoder("openai:m@http://h:abc/v1")
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\r\n")
    load_encoder(server.name)
    assert server.keys == [f"Bearer {KEY}"]


def test_the_digest_tells_models_and_prefixes_apart(server: Server) -> None:
    assert load_encoder(server.name).digest == load_encoder(server.name, query_prefix="q").digest
    assert load_encoder(server.name, passage_prefix="p").digest != load_encoder(server.name).digest
    assert load_encoder(server.name.replace("some-model", "other")).digest != load_encoder(server.name).digest


def test_missing_api_key_is_reported(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"the variable OTHER_KEY \(retrieval.api_key_env\) holds no key"):
        load_encoder(server.name, api_key_env="OTHER_KEY")
