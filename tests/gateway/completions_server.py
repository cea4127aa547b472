"""A server with the routes of vLLM's that the engine ``openai`` calls, in front of a real engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.transformers_engine import TransformersEngine

SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "seed")


@contextmanager
def completions_server(engine: TransformersEngine) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve an engine; yield the URL and the bodies of the requests for completions."""
    lock, bodies = threading.Lock(), list[dict[str, Any]]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            models = {"data": [{"id": "policy", "max_model_len": engine.max_model_len}]}
            self._send(models if self.path == "/v1/models" else {})

        def do_POST(self) -> None:
            assert self.path == "/v1/completions"
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert body["return_token_ids"]
            params = SamplingParams(**{name: body[name] for name in SAMPLING}, stop=tuple(body["stop"]))
            with lock:
                bodies.append(body)
                [completion] = engine.generate([body["prompt"]], params)
            choice = {
                "finish_reason": completion.finish, "token_ids": completion.token_ids,
                "logprobs": {"token_logprobs": completion.logprobs},
            }  # fmt: skip
            self._send({"choices": [choice]})

        def _send(self, answer: dict[str, Any]) -> None:
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        server.server_close()
