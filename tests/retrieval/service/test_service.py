"""The service and its client over real sockets, on a small generated world."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question, Triple
from platform_sdk.retrieval.environments import build_retriever, open_retriever
from platform_sdk.retrieval.index import build_index
from platform_sdk.retrieval.milvus import Vectors
from platform_sdk.retrieval.remote import RemoteRetriever
from platform_sdk.retrieval.service.metrics import Metrics
from platform_sdk.retrieval.service.tokens import Tokens, UnreadableTokens
from platform_sdk.sampling.rollout import RetrieverFault, SearchRequest
from tests.http_server import HttpServer
from tests.process_watch import wait_for
from tests.retrieval.processes import STARTED_WITHIN, Embeddings, served

REAL = RetrievalSpec(threads=1)


def value(metrics: Metrics, name: str) -> float:
    found = re.search(rf"^hopforge_retriever_{name}\S* (\S+)$", metrics.text(), re.M)
    assert found is not None
    return float(found[1])


TOKENS = {"red": "red-secret", "blue": "blue-secret"}


@pytest.fixture(scope="module")
def encoder() -> Iterator[RetrievalSpec]:
    """An encoder that needs no loading."""
    with Embeddings() as server:
        yield server.spec()


@pytest.fixture(scope="module")
def queries(world: Path) -> list[SearchRequest]:
    questions = read_jsonl(world / "corpus/questions.eval.jsonl", Question)
    return [SearchRequest(question.text) for question in questions]


@pytest.fixture(scope="module")
def passages(world: Path, encoder: RetrievalSpec) -> CollectionSpec:
    return CollectionSpec(name="passages", run_dir=world, environment="world-text", retrieval=encoder)


def test_service_finds_the_same_as_an_in_process_retriever(
    world: Path, encoder: RetrievalSpec, queries: list[SearchRequest]
) -> None:
    with open_retriever("world-text", world, REAL, show_progress=False) as own:
        expected = own.search(queries, 4)
        digest, rows = own.corpus_digest, own.index.rows
    passages = CollectionSpec(name="passages", run_dir=world, environment="world-text", retrieval=REAL)
    triples = CollectionSpec(name="facts", run_dir=world, environment="world-kg", retrieval=encoder)
    with served(ServiceSpec(collections=(passages, triples))) as url:
        by_service = RetrievalSpec(url=url, collection="passages")
        with build_retriever("world-text", world, by_service) as remote:
            assert remote.search(queries, 4) == expected
            assert remote.corpus_digest == digest
        built = build_index(world, by_service, "world-text")
        assert (built.rows, built.added, built.corpus_digest) == (rows, 0, digest)
        fact = next(iter(read_jsonl(world / "corpus/triples.jsonl", Triple)))
        with RemoteRetriever(url, "facts") as graph:
            found = graph.search([SearchRequest("What is known?", {"head": fact.head})], 50)[0]
            assert fact.text in {one.text for one in found}
            assert all(one.text.startswith(f"{fact.head}, ") for one in found)
            with pytest.raises(ValueError, match="needs head in the scope"):
                graph.search([SearchRequest("no head")], 3)
        with pytest.raises(UserError, match=r"several collections.*passages, facts"):
            RemoteRetriever(url)
        with pytest.raises(UserError, match="this run's are triples"):
            build_retriever("world-kg", world, by_service)


def test_a_request_is_answered_item_by_item_and_refused_with_a_reason(
    world: Path, encoder: RetrievalSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform_sdk.retrieval.service.tokens.FRESH_SECONDS", 0.0)
    metrics = Metrics()
    for team, token in TOKENS.items():
        (tmp_path / team).write_text(token + "\n")
    graph = CollectionSpec(name="facts", run_dir=world, environment="world-kg", retrieval=encoder, teams=("red",))
    with (
        served(ServiceSpec(collections=(graph,)), Tokens(tmp_path), metrics=metrics) as url,
        httpx.Client(base_url=url, headers={"Authorization": "Bearer red-secret"}) as red,
    ):
        head = next(iter(read_jsonl(world / "corpus/triples.jsonl", Triple))).head
        asked = [
            {"query": "who", "scope": {"head": head}},
            {"query": "who"},
            {"query": "who", "scope": {"head": "nobody"}},
        ]
        answer = red.post("/v1/search", json={"queries": asked, "k": 2})
        good, bad, empty = answer.json()["results"]
        assert answer.headers["X-Corpus-Digest"] == answer.json()["corpus_digest"]
        assert good["error"] is None
        assert good["evidence"][0].keys() == {"kind", "id", "title", "text", "score", "entities"}
        assert (bad["evidence"], bad["error"]["code"]) == (None, "invalid_query")
        assert empty == {"evidence": [], "error": None}  # the graph knows nothing of it, which is no fault

        body = {"queries": asked[:1], "k": 2}
        cases: list[tuple[httpx.Response, int, str]] = [
            (httpx.post(f"{url}/v1/search", json=body), 401, "unauthorized"),
            (red.post("/v1/search", json=body, headers={"Authorization": "Bearer wrong"}), 401, "unauthorized"),
            (red.post("/v1/search", json=body | {"collection": "x"}), 404, "no_such_collection"),
            (red.post("/v1/search", json=body, headers={"X-Corpus-Digest": "other"}), 409, "other_corpus"),
            (red.post("/v1/search", json=body | {"k": 0}), 422, "invalid_request"),
            (red.post("/v1/search", json=body | {"queries": []}), 422, "invalid_request"),
            (red.post("/v1/search", json=body | {"queries": [{"query": "who", "head": head}]}), 422, "invalid_request"),
        ]
        for response, status, code in cases:
            assert (response.status_code, response.json()["error"]["code"]) == (status, code)
        assert red.get("/readyz", params={"digest": "other"}).status_code == 409
        assert red.get("/readyz", params={"digest": answer.json()["corpus_digest"]}).status_code == 200
        told = metrics.text()
        assert re.search(r'^hopforge_retriever_queries_total\{collection="facts",team="red"\} 2\.0$', told, re.M)
        assert "secret" not in told
        (tmp_path / "red").write_text("rotated")
        assert red.post("/v1/search", json=body).status_code == 401


def test_invalid_requests_get_small_errors_of_one_format(passages: CollectionSpec) -> None:
    counted = Metrics()
    with served(ServiceSpec(collections=(passages,)), metrics=counted) as url, httpx.Client(base_url=url) as client:
        typed = {"Content-Type": "application/json"}
        good = b'{"queries": [{"query": "who"}], "k": 1}'
        lone = good.replace(b"who", b"\\ud800")
        unknown = b"{" + b",".join(b'"%d":1' % key for key in range(80_000)) + b"}"
        cases: list[tuple[httpx.Response, int, str]] = [
            (client.post("/v1/search", content=good), 415, "not_json"),
            (client.post("/v1/search", content=b"\xff{", headers=typed), 422, "invalid_request"),
            (client.post("/v1/search", content=good[:-3] + b"NaN}", headers=typed), 422, "invalid_request"),
            (
                client.post("/v1/search", content=lone, headers=typed),
                422,
                "invalid_request",
            ),
            (client.post("/v1/search", content=unknown, headers=typed), 422, "invalid_request"),
            (client.post("/v1/search", content=good[:-1] + b', "k": 2}', headers=typed), 422, "invalid_request"),
            (client.post("/v1/search", content=good.ljust(1 << 21), headers=typed), 413, "body_too_large"),
            (client.get("/v1/search"), 405, "no_such_method"),
            (client.get("/v2/search"), 404, "no_such_route"),
            (client.get("/metrics"), 404, "no_such_route"),
            (client.get("/docs"), 404, "no_such_route"),
        ]
        for response, status, code in cases:
            assert (response.status_code, response.json()["error"]["code"]) == (status, code)
            assert len(response.content) < 3000
        hostile = "\x00\u202e\U0001f600" + "a" * 30_000
        answer = client.post("/v1/search", json={"queries": [{"query": hostile}, {"query": ""}], "k": 1})
        assert [len(item["evidence"]) for item in answer.json()["results"]] == [1, 1]
        assert client.get("/openapi.json").json()["paths"].keys() == {
            "/v1/search",
            "/v1/collections",
            "/healthz",
            "/readyz",
        }
        metrics = counted.text()
        for line in (
            'hopforge_retriever_requests_total{route="/v1/search",status="422"} 5.0',
            'hopforge_retriever_requests_total{route="other",status="404"} 3.0',
            'hopforge_retriever_errors_total{code="body_too_large"} 1.0',
            'hopforge_retriever_request_seconds_count{route="/v1/search"} 9.0',
            'hopforge_retriever_encode_seconds_count{collection="passages"} 1.0',
            'hopforge_retriever_search_seconds_count{collection="passages"} 1.0',
            'hopforge_retriever_batch_queries_sum{collection="passages"} 2.0',
            'hopforge_retriever_queue_queries{collection="passages"} 0.0',
        ):
            assert line in metrics.splitlines()


def test_queries_of_disconnected_clients_are_dropped(passages: CollectionSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, free, searched = threading.Event(), threading.Event(), []
    nearest = Vectors.nearest

    def slow(self: Vectors, queries: Any, k: int) -> Any:
        busy.set()
        free.wait(STARTED_WITHIN)
        searched.append(len(queries))
        return nearest(self, queries, k)

    monkeypatch.setattr(Vectors, "nearest", slow)
    metrics = Metrics()
    with (
        served(ServiceSpec(collections=(passages,), deadline_seconds=STARTED_WITHIN), metrics=metrics) as url,
        ThreadPoolExecutor(2) as pool,
    ):

        def body(queries: int) -> dict[str, Any]:
            return {"queries": [{"query": f"who is {at}"} for at in range(queries)], "k": 1}

        def ask(queries: int) -> int:
            return httpx.post(f"{url}/v1/search", json=body(queries), timeout=STARTED_WITHIN).status_code

        try:
            first = pool.submit(ask, 1)
            assert busy.wait(STARTED_WITHIN)  # the worker is occupied
            with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as leaving:
                content = json.dumps(body(7)).encode()
                head = f"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n"
                leaving.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + content)
                wait_for(lambda: value(metrics, "queue_queries") == 7)
            wait_for(lambda: value(metrics, "queue_queries") == 0)  # nothing else ends it: the deadline is far
            last = pool.submit(ask, 2)
            wait_for(lambda: value(metrics, "queue_queries") == 2)
        finally:
            free.set()
        assert (first.result(), last.result()) == (200, 200)
    assert searched == [1, 2]


def test_unreadable_tokens_authorise_no_team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "red").write_text("red-secret\n")
    tokens = Tokens(tmp_path)
    assert (tokens.team("red-secret"), tokens.team("red-secrét")) == ("red", None)
    monkeypatch.setattr("platform_sdk.retrieval.service.tokens.FRESH_SECONDS", -1.0)
    (tmp_path / "red").rename(tmp_path / ".red")
    with pytest.raises(UnreadableTokens):
        tokens.team("red-secret")
    (tmp_path / "blue").write_text("new")
    assert (tokens.team("red-secret"), tokens.team("new")) == (None, "blue")
    (tmp_path / "green").write_text("new")
    with pytest.raises(UserError, match="two teams share a token"):
        Tokens(tmp_path)


def test_url_of_another_server_is_refused_at_once() -> None:
    with (
        HttpServer(lambda _: (200, b"<html>")) as server,
        pytest.raises(UserError, match=r"not an answer of a retriever service.*check retrieval.url"),
    ):
        RemoteRetriever(server.url)


def test_missing_token_is_reported_with_a_remedy(
    passages: CollectionSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "red").write_text("red-secret")
    with (
        served(ServiceSpec(collections=(passages,)), Tokens(tmp_path)) as url,
    ):
        with pytest.raises(UserError, match="put the team's token into HOPFORGE_RETRIEVER_TOKEN"):
            RemoteRetriever(url)
        monkeypatch.setenv("HOPFORGE_RETRIEVER_TOKEN", "red-secret\n")  # as a file has it
        RemoteRetriever(url).close()
        monkeypatch.setenv("HOPFORGE_RETRIEVER_TOKEN", "red\nsecret")
        with pytest.raises(UserError, match="an HTTP header must not hold"):
            RemoteRetriever(url)


def test_concurrent_clients_get_their_own_results(passages: CollectionSpec, queries: list[SearchRequest]) -> None:
    with open_retriever("world-text", passages.run_dir, passages.retrieval, show_progress=False) as own:
        expected = own.search(queries, 3)
    metrics = Metrics()
    with served(ServiceSpec(collections=(passages,), queue=16, batch=8), metrics=metrics) as url:
        # Forty clients against a queue of sixteen: some are told to come back, and all are answered in the end.
        def ask(number: int) -> bool:
            with RemoteRetriever(url) as remote:
                place = number % len(queries)
                return remote.search([queries[place]] * 2, 3) == [expected[place]] * 2

        with ThreadPoolExecutor(40) as pool:
            assert all(pool.map(ask, range(60)))
        assert value(metrics, "batch_queries_count") < 60  # requests were joined


def test_searches_wait_for_an_unavailable_service(
    passages: CollectionSpec, queries: list[SearchRequest], caplog: pytest.LogCaptureFixture
) -> None:
    spec = ServiceSpec(collections=(passages,))
    with served(spec) as url:
        port = int(url.rsplit(":", 1)[1])
        remote = RemoteRetriever(url, patience=STARTED_WITHIN)
        expected = remote.search(queries, 2)
    with ThreadPoolExecutor(1) as pool, remote:
        waiting = pool.submit(remote.search, queries, 2)
        wait_for(lambda: "waiting up to" in caplog.text)
        assert not waiting.done()
        with served(spec, port=port):
            assert waiting.result(STARTED_WITHIN) == expected


def test_a_fault_of_milvus_is_waited_for_and_never_an_empty_result(
    passages: CollectionSpec,
    queries: list[SearchRequest],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = threading.Event()
    nearest = Vectors.nearest

    def sometimes(self: Vectors, *arguments: Any) -> Any:
        if away.is_set():
            raise RetrieverFault("Milvus: connection refused")
        return nearest(self, *arguments)

    monkeypatch.setattr(Vectors, "nearest", sometimes)
    with served(ServiceSpec(collections=(passages,))) as url, RemoteRetriever(url) as remote:
        expected = remote.search(queries, 2)
        away.set()
        answer = httpx.post(f"{url}/v1/search", json={"queries": [{"query": "who"}], "k": 1})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(remote.search, queries, 2)
            wait_for(lambda: "waiting up to" in caplog.text)
            assert not waiting.done()
            away.clear()
            assert waiting.result(STARTED_WITHIN) == expected
        away.set()
        with (
            RemoteRetriever(url, patience=0.01) as hasty,
            pytest.raises(UserError, match="refused.*waited 0.01 s"),
        ):
            hasty.search(queries, 2)
