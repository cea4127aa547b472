"""Encoding by several processes: equal vectors in equal order, and what happens if a process ends."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.retrieval import encoding
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.load import load_encoder
from platform_sdk.retrieval.milvus import open_vectors

TEXTS = [" ".join(f"word{number * place % 7}" for place in range(number % 9 + 1)) for number in range(61)]
ONE, TWO = RetrievalSpec(threads=1), RetrievalSpec(threads=1, processes=2)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder(**ONE.encoder_settings())


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 8)


@pytest.mark.slow  # each process loads an encoder
def test_two_processes_encode_the_bits_of_one_and_a_build_resumes_after_the_end_of_one_of_them(
    tmp_path: Path, encoder: Encoder
) -> None:
    def kill(done: int, rows: int) -> None:
        if done == 16:
            multiprocessing.active_children()[0].kill()

    settings = {"collection": "passages", "digest": "c0ffee" * 10 + "c0ff", "encoder": encoder}
    with pytest.raises(UserError, match=r"one of 2 processes ended; .* If memory is short, lower retrieval\.processes"):
        open_vectors(TWO, tmp_path / "two", TEXTS, watch=kill, **settings)
    assert multiprocessing.active_children() == []
    resumed = open_vectors(TWO, tmp_path / "two", TEXTS, **settings)
    whole = open_vectors(ONE, tmp_path / "one", TEXTS, **settings)
    assert 0 < resumed.encoded <= len(TEXTS) - 16
    assert multiprocessing.active_children() == []
    rows = list(range(len(TEXTS)))
    assert np.array_equal(resumed.fetch(rows), whole.fetch(rows))
    resumed.close()
    whole.close()


def test_processes_share_the_cores_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[dict[str, object]] = []
    monkeypatch.setattr(encoding, "load_encoder", lambda **settings: loaded.append(settings))
    monkeypatch.setattr(encoding, "end_with", lambda parent: None)
    monkeypatch.setattr(encoding, "_encoders", [])
    monkeypatch.setattr(encoding.os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    encoding._begin(0, 0, 3, {"device": "cpu", "threads": None})
    assert loaded == [{"device": "cpu", "threads": 2}]


def test_processes_of_a_service_are_refused() -> None:
    for settings in ({"url": "http://retriever:8080"}, {"encoder": "openai:bge-m3@http://host/v1"}):
        with pytest.raises(ValueError, match="a service has the encoder; remove processes"):
            RetrievalSpec.model_validate({"processes": 2, **settings})
