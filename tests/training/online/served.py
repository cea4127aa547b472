"""A server with the routes of vLLM's, on top of the transformers engine: the peer that the protocol is tested on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.http_server import HttpRequest, HttpResponse, HttpServer


class StubServer:
    """``deaf``: it answers a request to reload with 200 and keeps the weights that it has."""

    def __init__(self, model: Path, *, deaf: bool) -> None:
        self.engine = TransformersEngine(model, live=8)
        self.deaf = deaf
        self.reloads = 0
        self.lock = threading.Lock()

    def answer(self, route: str, body: dict[str, Any]) -> Any:
        with self.lock:
            if route == "/v1/models":
                return {"data": [{"id": "served", "max_model_len": self.engine.max_model_len}]}
            if route == "/v1/completions":
                return self._complete(body)
            if route == "/collective_rpc":
                assert body["method"] == "reload_weights"
                self.reloads += 1
                if not self.deaf:
                    self.engine.load_weights(body["kwargs"]["weights_path"])
                return {"results": [None]}
            assert route == "/reset_prefix_cache", route
            return {"success": True}

    def _complete(self, body: dict[str, Any]) -> Any:
        names = ("temperature", "top_p", "top_k", "max_tokens", "seed")
        params = SamplingParams(**{name: body[name] for name in names}, stop=tuple(body["stop"]))
        [done] = self.engine.generate([body["prompt"]], params)
        choice = {
            "token_ids": list(done.token_ids),
            "logprobs": {"token_logprobs": list(done.logprobs)},
            "finish_reason": done.finish,
        }
        return {"choices": [choice]}


@contextmanager
def serving(model: Path, *, deaf: bool = False) -> Iterator[tuple[str, StubServer]]:
    """The server's URL, and what it serves."""
    served = StubServer(model, deaf=deaf)

    def answer(request: HttpRequest) -> HttpResponse:
        return 200, served.answer(request.path, request.json() if request.body else {})

    with HttpServer(answer) as server:
        yield server.url, served
