"""An HTTP server in this process, whose answers a test writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

HttpResponse = tuple[int, Any] | tuple[int, Any, dict[str, str]] | None
"""Status, content (bytes, text or a value for JSON) and further headers; None closes the connection."""


@dataclass(frozen=True)
class HttpRequest:
    """A request as the server received it."""

    method: str
    path: str
    headers: Message
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class HttpServer(ThreadingHTTPServer):
    """Answers each request with ``answer``, which is given or a subclass's method; the requests are in ``received``."""

    def __init__(self, answer: Callable[[HttpRequest], HttpResponse] | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.url, self.received = f"http://127.0.0.1:{self.server_port}", list[HttpRequest]()
        if answer is not None:
            self.answer = answer  # type: ignore[assignment]

    def answer(self, request: HttpRequest) -> HttpResponse:
        raise NotImplementedError

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = HttpRequest(self.command, self.path, self.headers, body)
        self.server.received.append(request)
        if (answer := self.server.answer(request)) is None:
            self.close_connection = True
            return
        status, content, *further = answer
        if not isinstance(content, bytes):
            content = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        for name, value in (headers | (further[0] if further else {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def log_message(self, *_: object) -> None: ...
