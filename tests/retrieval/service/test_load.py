"""Two hundred clients at once, below the bound and past it, against the service as a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from benchmarks import retriever as benchmark
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.records import Passage, read_jsonl
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.service.remote import RemoteRetriever
from platform_sdk.sampling.rollout import SearchRequest
from tests.retrieval.processes import Embeddings, Service, prepare_world

CLIENTS = 200


@pytest.fixture(scope="module")
def encoder() -> Iterator[RetrievalSpec]:
    with pytest.MonkeyPatch.context() as patch, Embeddings() as server:
        patch.setenv("OPENAI_API_KEY", "any")
        yield server.spec()


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load")
    prepare_world(path, entities=300)
    return path


def started(run_dir: Path, encoder: RetrievalSpec, **limits: int) -> Service:
    collection = CollectionSpec(name="world", run_dir=run_dir, environment="world-text", retrieval=encoder)
    return Service(run_dir, ServiceSpec(collections=(collection,), **limits))


def measured(service: Service) -> benchmark.Service:
    return benchmark.Service(service.url, service.metrics_url, service.process.pid)


def test_two_hundred_clients_are_answered_without_an_error_and_joined(run_dir: Path, encoder: RetrievalSpec) -> None:
    titles = [passage.title for passage in read_jsonl(run_dir / "corpus/passages.jsonl", Passage)]
    questions = [f"{at} {titles[at % len(titles)]}" for at in range(50_000)]
    with started(run_dir, encoder) as service:
        service.ready()
        met = benchmark.load_aside(service.url, list(questions), CLIENTS, 3)
        metric = measured(service).metric
        assert met.errors == []
        assert len(met.latencies) > CLIENTS
        assert metric("batch_queries_sum") == len(met.latencies)
        assert metric("batch_queries_sum") / metric("batch_queries_count") > 10
        assert metric("queue_queries") == 0
    some = sorted(met.answers)[::50]
    with open_retriever("world-text", run_dir, encoder, show_progress=False) as own:
        expected = own.search([SearchRequest(text) for text in some], benchmark.K)
    for text, evidence in zip(some, expected, strict=True):
        assert [(hit["id"], hit["score"]) for hit in met.answers[text]] == [(one.id, one.score) for one in evidence]


def test_past_the_bound_clients_are_told_when_to_come_back_and_all_are_answered(
    run_dir: Path, encoder: RetrievalSpec
) -> None:
    asked = [SearchRequest(f"who is number {at}") for at in range(40)]
    with open_retriever("world-text", run_dir, encoder, show_progress=False) as own:
        expected = own.search(asked, 3)
    with started(run_dir, encoder, queue=16, batch=8) as service:
        service.ready()

        async def flood(requests: int) -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=service.url, timeout=60) as session:
                body = {"queries": [{"query": "who"}] * 4, "k": 3}
                return await asyncio.gather(*(session.post("/v1/search", json=body) for _ in range(requests)))

        with ThreadPoolExecutor(1) as aside:
            answers = aside.submit(lambda: asyncio.run(flood(CLIENTS))).result()
            refused = [answer for answer in answers if answer.status_code == 429]
            assert {answer.status_code for answer in answers} == {200, 429}
            assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
            peak = measured(service).peak()
            for _ in range(2):
                aside.submit(lambda: asyncio.run(flood(CLIENTS))).result()
        assert measured(service).peak() < peak + 32  # MiB: what is refused is not kept

        def client(number: int) -> bool:
            with RemoteRetriever(service.url, patience=120) as remote:
                at = number % len(asked)
                return remote.search([asked[at]] * 3, 3) == [expected[at]] * 3

        with ThreadPoolExecutor(64) as pool:
            assert all(pool.map(client, range(CLIENTS)))
        text = httpx.get(service.metrics_url).text
        assert 'hopforge_retriever_errors_total{code="queue_full"}' in text
        assert 'code="internal"' not in text
