"""Two hundred clients at once, below the bound and past it. The encoder waits until all of them have asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.service.metrics import Metrics
from platform_sdk.sampling.rollout import SearchRequest
from tests.process_watch import wait_for
from tests.retrieval.processes import STARTED_WITHIN, Embeddings, served

CLIENTS = 200


def service_of(run_dir: Path, encoder: Embeddings, **limits: int) -> ServiceSpec:
    collection = CollectionSpec(name="world", run_dir=run_dir, environment="world-text", retrieval=encoder.spec())
    return ServiceSpec(collections=(collection,), deadline_seconds=STARTED_WITHIN, **limits)


def value(metrics: Metrics, name: str) -> float:
    found = re.search(rf"^hopforge_retriever_{name}\S* (\S+)$", metrics.text(), re.M)
    return float(found[1]) if found else 0.0


async def ask_all(url: str, questions: Sequence[str]) -> list[httpx.Response]:
    """Ask every question at the same time, each over a connection of its own."""
    limits = httpx.Limits(max_connections=len(questions))
    async with httpx.AsyncClient(base_url=url, timeout=STARTED_WITHIN, limits=limits, verify=False) as session:
        bodies = [{"queries": [{"query": question}], "k": 3} for question in questions]
        return await asyncio.gather(*(session.post("/v1/search", json=body) for body in bodies))


def test_concurrent_clients_are_answered_in_two_calls(world: Path, embeddings: Embeddings) -> None:
    texts = [question.text for question in read_jsonl(world / "corpus/questions.eval.jsonl", Question)]
    questions = [f"{at} {texts[at % len(texts)]}" for at in range(CLIENTS)]
    metrics = Metrics()
    with served(service_of(world, embeddings), metrics=metrics) as url, ThreadPoolExecutor(2) as aside:
        calls = value(metrics, "batch_queries_count")
        embeddings.gate.clear()
        try:
            first = aside.submit(lambda: asyncio.run(ask_all(url, questions[:1])))
            wait_for(lambda: questions[0] in embeddings.asked)
            others = aside.submit(lambda: asyncio.run(ask_all(url, questions[1:])))
            wait_for(lambda: value(metrics, "queue_queries") == CLIENTS - 1)
        finally:
            embeddings.gate.set()
        answers = [*first.result(), *others.result()]
        assert value(metrics, "batch_queries_count") - calls == 2
        assert value(metrics, "queue_queries") == 0
    assert {answer.status_code for answer in answers} == {200}
    with open_retriever("world-text", world, embeddings.spec(), show_progress=False) as own:
        expected = own.search([SearchRequest(question) for question in questions], 3)
    found = [[(hit["id"], hit["score"]) for hit in answer.json()["results"][0]["evidence"]] for answer in answers]
    assert found == [[(one.id, one.score) for one in evidence] for evidence in expected]


def test_clients_beyond_the_queue_limit_get_retry_after(world: Path, embeddings: Embeddings) -> None:
    metrics = Metrics()
    with (
        served(service_of(world, embeddings, queue=16, batch=8), metrics=metrics) as url,
        ThreadPoolExecutor(2) as aside,
    ):
        embeddings.gate.clear()
        try:
            first = aside.submit(lambda: asyncio.run(ask_all(url, ["who is first"])))
            wait_for(lambda: "who is first" in embeddings.asked)
            waiting = aside.submit(lambda: asyncio.run(ask_all(url, [f"who is {at}" for at in range(16)])))
            wait_for(lambda: value(metrics, "queue_queries") == 16)
            with ThreadPoolExecutor(1) as further:
                refused = further.submit(lambda: asyncio.run(ask_all(url, ["who is late"] * CLIENTS))).result()
        finally:
            embeddings.gate.set()
        assert {answer.status_code for answer in refused} == {429}
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        assert {answer.status_code for answer in (*first.result(), *waiting.result())} == {200}
        assert "who is late" not in embeddings.asked
        assert value(metrics, "queue_queries") == 0
        assert 'hopforge_retriever_errors_total{code="queue_full"} 200.0' in metrics.text()
        again = aside.submit(lambda: asyncio.run(ask_all(url, ["who is late"]))).result()
        assert again[0].status_code == 200
