"""Answers of Kubeflow Pipelines 2.17.0, recorded from a real server (``tests/kubeflow/recorded/pipelines``)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

Item = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "recorded/pipelines"


@cache
def _text(name: str) -> str:
    return (FOLDER / f"{name}.json").read_text(encoding="utf-8")


def recorded(name: str) -> Item:
    """A recording: a run or a pod, or an answer with its request, status and body."""
    return dict(json.loads(_text(name)))


class HttpError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, body: Item, content_type: str = "application/json") -> None:
        super().__init__(str(body))
        self.status, self.body, self.content_type = status, body, content_type


def refusal(recording: str, /, **values: str) -> HttpError:
    """A recorded refusal. ``values`` are put in the place of the recorded request's: its ids, names and parameters."""
    answer = recorded(recording)
    text = json.dumps(answer["body"])
    for old, new in _RECORDED.get(recording, {}).items():
        text = text.replace(old, json.dumps(values[new])[1:-1])
    return HttpError(answer["status"], json.loads(text), answer["headers"].get("content-type", "application/json"))


NO_ID = "00000000-0000-0000-0000-000000000000"
HELLO_RUN = "fa7d26f9-843f-472a-8400-e20b239dc93d"
_RECORDED = {
    **{
        f"error-{kind}-not-found": {NO_ID: "id"}
        for kind in ("run", "experiment", "pipeline", "version", "retry", "terminate")
    },
    "error-run-version-unknown": {NO_ID: "id"},
    "error-run-experiment-unknown": {NO_ID: "id"},
    "error-retry-of-succeeded": {HELLO_RUN: "id"},
    "error-terminate-of-succeeded": {HELLO_RUN: "id"},
    "error-experiment-duplicate": {"mygo": "name"},
    "pipeline-create-duplicate": {"mygo": "name"},
    "error-run-description-too-long": {"error-run-description-too-long": "name"},
    "error-run-parameter-unknown": {"nope": "name"},
    "error-run-parameter-wrong-type": {"times": "name"},
    "error-filter-bad-key": {"nope": "name"},
}
