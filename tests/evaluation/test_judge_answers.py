"""Answers of a judge's endpoint that are none: one error each, and no verdict."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.judge import JudgeSpec
from platform_sdk.evaluation.judge import Judge


class AnswerHandler(BaseHTTPRequestHandler):
    body = b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), AnswerHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"<html>", b"null", b"[]", b"5", b'{"choices": []}', b'{"choices": 5}', b'{"choices": [null]}',
        b'{"choices": [{}]}', b'{"choices": [{"message": null}]}', b'{"choices": [{"message": {"content": [1]}}]}',
        b"[" * 100_000, b'{"choices": ' + b"9" * 10_000 + b"}", b'{"choices": "\xff"}',
    ],
)  # fmt: skip
def test_an_answer_without_a_message_is_one_error(
    url: str, body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnswerHandler, "body", body)
    spec = JudgeSpec(url=url, model="m", cache=str(tmp_path), retries=0)
    with Judge(spec) as judge, pytest.raises(UserError, match=f"judge m at {url}: the answer") as caught:
        judge.verdicts([("q", ["a"], "b")])
    assert len(str(caught.value)) < 500
    assert not list(tmp_path.rglob("*.json"))


def test_lone_surrogate_in_a_reply_is_an_unparsable_verdict(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnswerHandler, "body", b'{"choices": [{"message": {"content": "\\ud800"}}]}')
    with Judge(JudgeSpec(url=url, model="m", cache=str(tmp_path), retries=0)) as judge:
        assert judge.verdicts([("q", ["a"], "b")]) == ["unparsable"]
