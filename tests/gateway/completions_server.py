"""A server with the routes of vLLM's that the engine ``openai`` calls, in front of a real engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.http_server import HttpRequest, HttpResponse, HttpServer

SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "seed")


@contextmanager
def completions_server(engine: TransformersEngine) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve an engine; yield the URL and the bodies of the requests for completions."""
    lock, bodies = threading.Lock(), list[dict[str, Any]]()

    def answer(request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            models = {"data": [{"id": "policy", "max_model_len": engine.max_model_len}]}
            return 200, models if request.path == "/v1/models" else {}
        assert request.path == "/v1/completions"
        body = request.json()
        assert body["return_token_ids"]
        params = SamplingParams(**{name: body[name] for name in SAMPLING}, stop=tuple(body["stop"]))
        with lock:
            bodies.append(body)
            [completion] = engine.generate([body["prompt"]], params)
        choice = {
            "finish_reason": completion.finish, "token_ids": completion.token_ids,
            "logprobs": {"token_logprobs": completion.logprobs},
        }  # fmt: skip
        return 200, {"choices": [choice]}

    with HttpServer(answer) as server:
        yield server.url, bodies
