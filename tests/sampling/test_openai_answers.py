"""Answers of a sampling server that are none: one error each, and no completion."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.sampling import openai_engine
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.openai_engine import OpenAIEngine
from tests.http_server import HttpServer

MODELS = b'{"data": [{"id": "m", "max_model_len": 64}]}'
CHOICE = b'{"finish_reason": "stop", "token_ids": [1, 2], "logprobs": {"token_logprobs": [-0.5, -1]}}'
ODD = [
    b"", b"{", b"<html>", b"null", b"[]", b"{}", b"[" * 100_000, b"\xff",
]  # fmt: skip


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes, bytes], OpenAIEngine]:
    """An engine whose server gives these answers; its weights are taken on trust."""

    def make(models: bytes, completions: bytes) -> OpenAIEngine:
        def answer(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, content=models if request.url.path == "/v1/models" else completions)

        client = httpx.Client(base_url="http://server", transport=httpx.MockTransport(answer))
        monkeypatch.setattr(openai_engine.httpx, "Client", lambda **_: client)
        monkeypatch.setattr(openai_engine.probing, "probe_of_path", lambda *_, **__: None)
        monkeypatch.setattr(openai_engine, "load_tokenizer", lambda _: None)
        monkeypatch.setattr(OpenAIEngine, "_check", lambda *_: None)
        return OpenAIEngine("http://server", Path("model"))

    return make


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], OpenAIEngine]:
    """Connects to a server whose weights are taken on trust."""
    monkeypatch.setattr(openai_engine.probing, "probe_of_path", lambda *_, **__: None)
    monkeypatch.setattr(openai_engine, "load_tokenizer", lambda _: None)
    monkeypatch.setattr(OpenAIEngine, "_check", lambda *_: None)
    monkeypatch.setattr(openai_engine.time, "sleep", lambda _: None)
    return lambda url: OpenAIEngine(url, Path("model"))


def test_a_server_of_this_machine_is_reached_without_the_proxy(
    connect: Callable[[str], OpenAIEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpServer(lambda _: (200, MODELS)) as server, HttpServer(lambda _: (403, b"no")) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("NO_PROXY", "")
        with closing(connect(server.url)) as engine:
            assert engine.max_model_len == 64
        with pytest.raises(UserError, match="HTTP 403: no"):
            connect("http://sampler.invalid:8000")
    assert not any(request.path.startswith(server.url) for request in proxy.received)


def test_a_key_from_a_file_keeps_no_line_break(
    connect: Callable[[str], OpenAIEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-1\n")
    with HttpServer(lambda _: (200, MODELS)) as server:
        connect(server.url).close()
    assert server.received[0].headers["Authorization"] == "Bearer k-1"
    for key in ("k-1\nk-2", "k-\u20ac"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(UserError, match="the key in OPENAI_API_KEY has characters") as caught:
            connect(server.url)
        assert "k-" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://[::1", "sampling.engine.url .*; correct the URL"),
        ("localhost:8000", "UnsupportedProtocol"),
        ("http://xn--a.", "not allowed"),
    ],
)
def test_an_invalid_url_is_one_error(connect: Callable[[str], OpenAIEngine], url: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        connect(url)


def test_whole_answers_are_read(engine: Callable[[bytes, bytes], OpenAIEngine]) -> None:
    (completion,) = engine(MODELS, b'{"choices": [' + CHOICE + b"]}").generate([[1]], SamplingParams(max_tokens=4))
    assert (completion.token_ids, completion.logprobs) == ((1, 2), (-0.5, -1.0))


@pytest.mark.parametrize(
    "models", [*ODD, b'{"data": []}', b'{"data": [{"id": 5}]}', MODELS.replace(b"64", b"9" * 9999)]
)
def test_odd_lists_of_models_are_one_error(engine: Callable[[bytes, bytes], OpenAIEngine], models: bytes) -> None:
    with pytest.raises(UserError, match="http://server: the server's answer cannot be read") as caught:
        engine(models, b"")
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "choice",
    [
        b"null", b"5", b"[]", b"{}", CHOICE.replace(b"[1, 2]", b'["a", 2]'), CHOICE.replace(b"[1, 2]", b"[1]"),
        CHOICE.replace(b"-0.5", b"null"), CHOICE.replace(b"-0.5", b"NaN"), CHOICE.replace(b"-0.5", b"-1e999"),
        CHOICE.replace(b"[1, 2]", b"[" + b"9" * 9999 + b", 2]"),
    ],
)  # fmt: skip
def test_odd_completions_are_one_error(engine: Callable[[bytes, bytes], OpenAIEngine], choice: bytes) -> None:
    with pytest.raises(UserError, match="http://server: the server") as caught:
        engine(MODELS, b'{"choices": [' + choice + b"]}").generate([[1]], SamplingParams(max_tokens=4))
    assert len(str(caught.value)) < 600
