"""An API server that answers reads of given objects, for what ``hopforge teams`` asks of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

Item = dict[str, Any]
Fault = Callable[[str], tuple[int, Any] | None]


class Server:
    """Objects by path; a path with ``items`` is a collection, of which a label selector selects.

    Args:
        objects: What is there.
    """

    def __init__(self, objects: dict[str, Item]) -> None:
        self.objects = objects
        self.fault: Fault = lambda path: None
        self.accepted: list[tuple[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                split = urlsplit(self.path)
                server.accepted.append((split.path, self.headers["Accept"]))
                status, answer = server.answer(split.path, parse_qs(split.query).get("labelSelector", [""])[0])
                text = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *arguments: Any) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, selector: str) -> tuple[int, Any]:
        if (fault := self.fault(path)) is not None:
            return fault
        found = self.objects.get(path)
        if found is None:
            return 404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": f"{path} not found"}
        if selector and "items" in found:
            wanted = dict(pair.split("=") for pair in selector.split(","))
            items = [item for item in found["items"] if wanted.items() <= item["metadata"].get("labels", {}).items()]
            return 200, {**found, "items": items}
        return 200, found


def forbidden(path: str) -> tuple[int, Item]:
    message = f'resources at {path} are forbidden: User "bob@example.com" cannot get them'
    return 403, {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": message}
