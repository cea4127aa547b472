"""A judge for tests: an OpenAI-compatible endpoint on this machine."""

from __future__ import annotations

import ast
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

KEY = "sk-very-secret"


class Server(ThreadingHTTPServer):
    """Says yes if the response holds an accepted answer; first refuses with each status of ``refusals``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.refusals: list[int] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.replies: dict[str, str] = {}
        self.pause = 0.0
        self.at_once = self.most_at_once = 0
        self.tries = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


def read_item(messages: list[dict[str, str]]) -> dict[str, Any]:
    """Return what is asked about, in this project's prompt or in ARENA's."""
    if messages[0]["role"] == "system":
        found: dict[str, Any] = json.loads(messages[1]["content"])
        return found
    _, _, answers, _, response, *_ = messages[0]["content"].split("*" * 13)
    return {"accepted answers": ast.literal_eval(answers.strip()), "response": response.strip()}


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.tries += 1
            server.keys.add(str(self.headers["Authorization"]))
            status = server.refusals.pop(0) if server.refusals else 200
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
            if status == 200:
                server.requests.append(body)
        time.sleep(server.pause)
        with server.lock:
            server.at_once -= 1
        item = read_item(body["messages"])
        right = any(answer in item["response"] for answer in item["accepted answers"])
        reply = server.replies.get(body["messages"][-1]["content"]) or server.replies.get(item["response"])
        choice = {"index": 0, "message": {"role": "assistant", "content": reply or ("yes" if right else "No.")}}
        content: dict[str, Any] = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
        }
        if status != 200:
            content = {"error": {"message": f"no, not with {KEY}"}}
        data = json.dumps(content).encode()
        self.send_response(status if self.path == "/v1/chat/completions" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(name="server")
def judge_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()
