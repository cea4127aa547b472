"""A judge for tests: an OpenAI-compatible endpoint on this machine."""

from __future__ import annotations

import ast
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.http_server import HttpRequest, HttpResponse, HttpServer

KEY = "sk-very-secret"


class Server(HttpServer):
    """Says yes if the response holds an accepted answer; first refuses with each status of ``refusals``.

    A request waits at the barrier ``together``, if there is one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.url += "/v1"
        self.lock = threading.Lock()
        self.refusals: list[int] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.replies: dict[str, str] = {}
        self.pause = 0.0
        self.together: threading.Barrier | None = None
        self.at_once = self.most_at_once = 0
        self.tries = 0

    def answer(self, request: HttpRequest) -> HttpResponse:
        body = request.json()
        with self.lock:
            self.tries += 1
            self.keys.add(str(request.headers["Authorization"]))
            status = self.refusals.pop(0) if self.refusals else 200
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            if status == 200:
                self.requests.append(body)
        if self.together is not None:
            self.together.wait(60)
        time.sleep(self.pause)
        with self.lock:
            self.at_once -= 1
        if status != 200:
            headers = {"Retry-After": "1"} if status == 429 else {}
            return status, {"error": {"message": f"no, not with {KEY}"}}, headers
        item = read_item(body["messages"])
        right = any(answer in item["response"] for answer in item["accepted answers"])
        reply = self.replies.get(body["messages"][-1]["content"]) or self.replies.get(item["response"])
        choice = {"index": 0, "message": {"role": "assistant", "content": reply or ("yes" if right else "No.")}}
        content = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return 200 if request.path == "/v1/chat/completions" else 404, content


def read_item(messages: list[dict[str, str]]) -> dict[str, Any]:
    """Return what is asked about, in this project's prompt or in ARENA's."""
    if messages[0]["role"] == "system":
        found: dict[str, Any] = json.loads(messages[1]["content"])
        return found
    _, _, answers, _, response, *_ = messages[0]["content"].split("*" * 13)
    return {"accepted answers": ast.literal_eval(answers.strip()), "response": response.strip()}


@pytest.fixture(name="server")
def judge_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Server() as server:
        yield server
