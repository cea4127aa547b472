"""Answers of a judge's endpoint that are none: one error each, and no verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.judge import JudgeSpec
from platform_sdk.evaluation.judge import Judge
from tests.http_server import HttpServer


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"<html>", b"null", b"[]", b"5", b'{"choices": []}', b'{"choices": 5}', b'{"choices": [null]}',
        b'{"choices": [{}]}', b'{"choices": [{"message": null}]}', b'{"choices": [{"message": {"content": [1]}}]}',
        b"[" * 100_000, b'{"choices": ' + b"9" * 10_000 + b"}", b'{"choices": "\xff"}',
    ],
)  # fmt: skip
def test_an_answer_without_a_message_is_one_error(body: bytes, tmp_path: Path) -> None:
    with HttpServer(lambda _: (200, body)) as server:
        url = f"{server.url}/v1"
        spec = JudgeSpec(url=url, model="m", cache=str(tmp_path), retries=0)
        with Judge(spec) as judge, pytest.raises(UserError, match=f"judge m at {url}: the answer") as caught:
            judge.verdicts([("q", ["a"], "b")])
    assert len(str(caught.value)) < 500
    assert not list(tmp_path.rglob("*.json"))


def test_lone_surrogate_in_a_reply_is_an_unparsable_verdict(tmp_path: Path) -> None:
    with HttpServer(lambda _: (200, {"choices": [{"message": {"content": "\ud800"}}]})) as server:
        spec = JudgeSpec(url=f"{server.url}/v1", model="m", cache=str(tmp_path), retries=0)
        with Judge(spec) as judge:
            assert judge.verdicts([("q", ["a"], "b")]) == ["unparsable"]
