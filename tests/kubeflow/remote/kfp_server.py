"""A small Kubeflow Pipelines server that speaks v2beta1's REST protocol over a socket.

It fails on demand, before or after it did what was asked; and ends a session on demand, as what stands before the real
one does: with a page to log in, or by sending there.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.kubeflow.remote.kfp_api import KfpApi, fault_answer
from tests.kubeflow.remote.recorded import HttpError

LOST, UNSTORED, LOGIN_PAGE, TO_LOGIN = "lost", "unstored", "login page", "to the login page"
LOGIN = "/dex/auth"
PAGE = b"<!doctype html><title>Log in</title>"


class KfpServer(KfpApi):
    """Use as a context manager; ``url`` is where it listens.

    ``fault`` is asked for every request: a status to answer with instead, ``LOST`` to do what is asked and hang up,
    ``UNSTORED`` to start a run's Workflow and fail to store the run, ``LOGIN_PAGE`` to show one, ``TO_LOGIN`` to send
    to one, or None. With ``tls`` it speaks that only. Workflows and pods are in ``cluster``, if there is one.
    """

    def __init__(
        self, *, namespaces: tuple[str, ...] = (), token: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(namespaces, token)
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], int | str | None] = lambda method, path: None
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = 1 << 16

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                split = urlsplit(self.path)
                server.requests.append((self.command, split.path))
                fault = server.fault(self.command, split.path)
                query = {key: values[0] for key, values in parse_qs(split.query).items()}
                if fault == TO_LOGIN and split.path != LOGIN:
                    self._send(302, b"", "text/html", Location=f"{LOGIN}?state=hidden")
                    return
                if fault in (LOGIN_PAGE, TO_LOGIN):
                    self._send(200, PAGE, "text/html; charset=utf-8")
                    return
                content_type = "application/json"
                try:
                    if isinstance(fault, int):
                        raise fault_answer(fault, f"HTTP {fault} on demand")
                    server.stores = fault != UNSTORED
                    status, answer = 200, server.answer(self.command, unquote(split.path), query, self.headers, body)
                except HttpError as error:
                    status, answer, content_type = error.status, error.body, error.content_type
                if fault == LOST:
                    self.close_connection = True
                    return
                self._send(status, json.dumps(answer).encode(), content_type)

            def _send(self, status: int, data: bytes, type_: str, **headers: str) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": type_, "Set-Cookie": "session=hidden", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _handle

            def log_message(self, *arguments: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> KfpServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
