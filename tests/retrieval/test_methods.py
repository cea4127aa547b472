"""Retrieval methods by name: shipped ones, and one of a user's own with two collections."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import pytest

from platform_sdk.config.environment import ENVIRONMENTS
from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.data.corpus import Corpus
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Evidence, Passage, Question, Source, Triple
from platform_sdk.retrieval import index
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.environments import build_retriever, open_retriever
from platform_sdk.retrieval.index import build_index
from platform_sdk.retrieval.method import NoSettings, load_method
from platform_sdk.retrieval.recall import measure_recall
from platform_sdk.retrieval.remote import RemoteRetriever
from platform_sdk.sampling.rollout import Agent, SearchFunction, SearchRequest, look_up, run
from tests.http_server import HttpRequest, HttpResponse, HttpServer
from tests.retrieval.processes import Embeddings, served

OWN = "tests.retrieval.neighbours"
TRIPLES = [
    Triple(head=head, relation=relation, tail=tail)
    for head in ("Ada Kahn", "Bela Lund", "Cora Moss", "Dino Kahn")
    for relation, tail in (("born in", "Oslo"), ("works as", "painter"), ("married to", "Edda Lund"))
]
REQUESTS = [SearchRequest("Where was Ada Kahn born?"), SearchRequest("Who married the painter Cora?")]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "corpus/triples.jsonl", Triple, TRIPLES)
    return tmp_path


def own_spec(encoder: Embeddings, **settings: Any) -> RetrievalSpec:
    return encoder.spec().model_copy(update={"method": OWN, "settings": settings})


def test_every_environments_method_is_shipped() -> None:
    assert {one.method: load_method(one.method).name for one in ENVIRONMENTS.values()} == {
        "passages": "passages", "triples": "triples", "contexts": "contexts",
    }  # fmt: skip
    assert load_method("none").name == "none"
    assert load_method(OWN).name == OWN


@pytest.mark.parametrize(
    "name", ["contexts", "lexical", "linked", "multi_query", "none", "passages", "reranked", "triples"]
)
def test_only_methods_that_encode_nothing_admit_several_processes(name: str, world: Path) -> None:
    spec = RetrievalSpec(method=name)
    material, _ = index.load_material(load_method(name), world, spec)
    assert (spec.single_process_reason is None) == (not material.texts())


def test_module_with_an_invalid_method_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ownsearch").mkdir()
    (tmp_path / "ownsearch/other.py").write_text("METHOD = 3\n")
    (tmp_path / "ownsearch/broken.py").write_text("METHOD = missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"ownsearch.other: METHOD is of type int; make it an instance"):
        load_method("ownsearch.other")
    with pytest.raises(UserError, match="importing ownsearch.broken failed: NameError"):
        load_method("ownsearch.broken")


def test_null_method_answers_an_agent_and_needs_neither_corpus_nor_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**settings: Any) -> Encoder:
        raise AssertionError("no encoder is needed")

    monkeypatch.setattr(index, "load_encoder", refuse)
    spec = RetrievalSpec(method="none")

    def agent(name: str, search: SearchFunction) -> Agent[tuple[str, list[list[Evidence]]]]:
        found = yield look_up(search, [SearchRequest(name, {"head": name}), SearchRequest(name)], 5)
        return name, found

    with open_retriever("anything", tmp_path, spec) as retriever:
        engine: Any = Idle()
        done = list(run([partial(agent, name, retriever.search) for name in ("a", "b")], engine, live=2))
    assert sorted(done) == [("a", [[], []]), ("b", [[], []])]
    built = build_index(tmp_path, spec, "anything")
    assert (built.method, built.rows, built.added) == ("none", 0, 0)
    assert not list(tmp_path.iterdir())


def test_null_method_is_served(tmp_path: Path) -> None:
    spec = RetrievalSpec(method="none")
    collection = CollectionSpec(name="nothing", run_dir=tmp_path, environment="anything", retrieval=spec)
    with (
        served(ServiceSpec(collections=(collection,))) as url,
        build_retriever("anything", tmp_path, RetrievalSpec(url=url, method="none")) as remote,
    ):
        assert remote.search(REQUESTS, 3) == [[], []]


def test_collection_that_cannot_be_built_leaves_the_file_to_others(run_dir: Path, embeddings: Embeddings) -> None:
    def watch(done: int, rows: int) -> None:
        if rows == len(TRIPLES):  # the second collection
            raise InterruptedError

    with pytest.raises(InterruptedError):
        open_retriever("anything", run_dir, own_spec(embeddings), show_progress=False, watch=watch)
    locked = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    subprocess.run([sys.executable, "-c", locked, str(run_dir / "index/milvus.db/LOCK")], check=True)


class Idle:
    """A sampling engine that is never asked."""

    def step(self) -> list[Any]:
        return []

    def release(self, dialogue: str) -> None: ...


def test_method_with_two_collections_finds_facts_of_the_nearest_entities(run_dir: Path, encoder: Encoder) -> None:
    heads = list(dict.fromkeys(triple.head for triple in TRIPLES))
    spec = RetrievalSpec(threads=1, method=OWN, settings={"entities": 1})
    with open_retriever("anything", run_dir, spec, show_progress=False) as retriever:
        found = retriever.search(REQUESTS, 2)
    for request, hits in zip(REQUESTS, found, strict=True):
        query = encoder.encode([request.query], kind="query")[0]
        entity = encoder.encode(heads, kind="passage") @ query
        facts = encoder.encode([triple.text for triple in TRIPLES], kind="passage") @ query
        [head] = np.argsort(-entity)[:1]
        rows = 3 * head + np.argsort(-facts[3 * head : 3 * head + 3])[:2]
        assert [hit.id for hit in hits] == [f"f{row}" for row in rows]
        assert hits[0].parts == {
            "fact": pytest.approx(float(facts[rows[0]]), abs=1e-5), "entity": pytest.approx(entity[head], abs=1e-5),
        }  # fmt: skip
        assert hits[0].source == Source(passage=f"p{rows[0]}", start=0)
    assert found[0][0].entities == ("Ada Kahn", "Oslo")


def test_service_finds_what_a_method_of_ones_own_finds_in_the_process(run_dir: Path, embeddings: Embeddings) -> None:
    spec = own_spec(embeddings, entities=3)
    with open_retriever("anything", run_dir, spec, show_progress=False) as retriever:
        expected = retriever.search(REQUESTS, 4)
    collection = CollectionSpec(name="graph", run_dir=run_dir, environment="anything", retrieval=spec)
    with served(ServiceSpec(collections=(collection,))) as url:
        asked = RetrievalSpec(url=url, method=OWN, settings={"entities": 3})
        with build_retriever("anything", run_dir, asked) as remote:
            assert remote.search(REQUESTS, 4) == expected
        built = build_index(run_dir, asked, "anything")
        assert (built.method, built.rows) == (OWN, 4 + 12)
        with pytest.raises(
            UserError, match=re.escape("settings {'entities': 3}, but retrieval.settings are {'entities': 2}")
        ):
            build_retriever("anything", run_dir, RetrievalSpec(url=url, method=OWN))
        with pytest.raises(UserError, match=rf"is {OWN} of corpus .*, but this run's are triples of"):
            build_retriever("anything", run_dir, RetrievalSpec(url=url, method="triples"))
        assert_client_ignores_unknown_fields(url, expected)


def assert_client_ignores_unknown_fields(url: str, expected: list[list[Evidence]]) -> None:
    """Search through a server that adds fields to every object of the service's answers."""
    refuse = threading.Event()

    def relay(request: HttpRequest) -> HttpResponse:
        kept = {
            name: value
            for name, value in request.headers.items()
            if name.lower() in ("x-corpus-digest", "content-type")
        }
        if refuse.is_set():
            kept["X-Corpus-Digest"] = "other"
        answer = httpx.request(request.method, url + request.path, content=request.body or None, headers=kept)
        headers = {name: answer.headers[name] for name in ("X-Corpus-Digest", "Content-Type") if name in answer.headers}
        return answer.status_code, grown(answer.json()), headers

    with HttpServer(relay) as server, RemoteRetriever(server.url) as remote:
        assert remote.search(REQUESTS, 4) == expected
        refuse.set()
        with pytest.raises(UserError, match="HTTP 409: collection graph searches corpus"):
            remote.search(REQUESTS, 4)


def grown(value: Any) -> Any:
    """``value`` with a field more in every object that has declared fields."""
    if isinstance(value, list):
        return [grown(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key in ("parts", "settings") else grown(item) for key, item in value.items()} | {
            "newer": {"than": ["this client"]}
        }
    return value


KILLED = """
import os, signal, sys
from pathlib import Path
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.retrieval import encoding
from platform_sdk.retrieval.environments import open_retriever
encoding.CHUNK = 5
def watch(done, rows):
    if (done, rows) == (int(sys.argv[3]), int(sys.argv[4])):
        os.kill(os.getpid(), signal.SIGKILL)
spec = RetrievalSpec.model_validate_json(sys.argv[2])
open_retriever("anything", Path(sys.argv[1]), spec, show_progress=False, watch=watch)
"""


@pytest.mark.parametrize(("done", "rows", "missing"), [(0, 4, 16), (0, 12, 12), (10, 12, 2)])
def test_killed_build_of_two_collections_is_finished(
    run_dir: Path, embeddings: Embeddings, done: int, rows: int, missing: int
) -> None:
    """Killed before the first collection, before the second, and in the midst of the second."""
    spec = own_spec(embeddings)
    command = [sys.executable, "-c", KILLED, str(run_dir), spec.model_dump_json(), str(done), str(rows)]
    path = os.pathsep.join(filter(None, sys.path))
    assert subprocess.run(command, env=os.environ | {"PYTHONPATH": path}).returncode == -signal.SIGKILL
    built = build_index(run_dir, spec, "anything", show_progress=False)
    assert (built.rows, built.added) == (16, missing)
    assert re.fullmatch(r"entities_(\w{16}_\w{16})\+facts_\1", built.collection)
    again = build_index(run_dir, spec, "anything", show_progress=False)
    assert (again.collection, again.added) == (built.collection, 0)


def test_settings_of_ones_own_method_are_checked_before_anything_is_opened(
    run_dir: Path, embeddings: Embeddings
) -> None:
    with pytest.raises(UserError, match=rf"retrieval.settings of method {OWN}: entities: Input should be greater"):
        open_retriever("anything", run_dir, own_spec(embeddings, entities=0))
    assert not (run_dir / "index").exists()


def test_recall_needs_a_scope_that_questions_can_fill() -> None:
    with pytest.raises(UserError, match="needs season in every search, which a question does not give; choose another"):
        measure_recall(None, ("season",), [], (1,))  # type: ignore[arg-type]


def test_recall_counts_triples_by_text_and_other_evidence_by_title() -> None:
    question = Question(
        id="q", text="Where?", answers=("Oslo",), dataset="test", gold_passages=("Oslo", "Lima"),
        gold_triples=(TRIPLES[0], TRIPLES[4]),
    )  # fmt: skip
    asked: list[SearchRequest] = []

    def found(kind: Literal["triple", "hyperedge"], scope: tuple[str, ...]) -> dict[int, float]:
        class Fixed:
            def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
                asked.extend(requests)
                rows = (
                    3,
                    0,
                    4,
                )  # of which the last two are gold triples, and only the first is titled by a gold passage
                titles = ("Lima", "other", "another")
                return [
                    [
                        Evidence(kind=kind, id=str(row), title=title, text=TRIPLES[row].text, score=1.0)
                        for row, title in zip(rows, titles, strict=True)
                    ]
                    for _ in requests
                ]

        retriever: Any = Fixed()
        return measure_recall(retriever, scope, [question], (1, 2, 3)).at

    assert found("triple", ()) == {1: 0.0, 2: 0.5, 3: 1.0}
    assert found("hyperedge", ("question_id",)) == {1: 0.5, 2: 0.5, 3: 0.5}
    assert found("triple", ("head",)) == {1: 0.0, 2: 0.5, 3: 1.0}
    assert asked == [
        SearchRequest("Where?"), SearchRequest("Where?", {"question_id": "q"}),
        SearchRequest("Where?", {"head": "Ada Kahn"}), SearchRequest("Where?", {"head": "Bela Lund"}),
    ]  # fmt: skip


def test_triples_of_homonyms_are_found_by_the_heads_id(tmp_path: Path, embeddings: Embeddings) -> None:
    named = [("Q1", "Q11"), ("Q2", "Q12")]
    store = [
        Triple(head="Amberfall", relation="director", tail="Ida Roth", head_id=head, tail_id=tail)
        for head, tail in named
    ]
    write_jsonl(tmp_path / "corpus/triples.jsonl", Triple, [*store, TRIPLES[0]])
    build_index(tmp_path, embeddings.spec(), "2wiki-kg")
    scopes = [
        {"head": "Q2", "head_name": "Amberfall"}, {"head": "Amberfall"}, {"head": "Q7", "head_name": "Ada Kahn"},
        {"head": "Q3", "head_name": "Amberfall"},  # an entity without triples, beside two homonyms
    ]  # fmt: skip
    with build_retriever("2wiki-kg", tmp_path, embeddings.spec()) as retriever:
        found = retriever.search([SearchRequest("Who directed it?", scope) for scope in scopes], 5)
    assert [[item.entities for item in items] for items in found] == [
        [("Q2", "Q12")], [("Q1", "Q11"), ("Q2", "Q12")], [("Ada Kahn", "Oslo")], [],
    ]  # fmt: skip
    assert found[0][0].entity_names == ("Amberfall", "Ida Roth")
    assert found[2][0].entity_names == ()
    # Recall visits as agents do: the gold head's id is not in this graph, its name is.
    gold = TRIPLES[0].model_copy(update={"head_id": "Q7"})
    asked = Question(id="q", text="Where?", answers=("Oslo",), dataset="test", gold_triples=(gold,))
    with build_retriever("2wiki-kg", tmp_path, embeddings.spec()) as retriever:
        assert measure_recall(retriever, ("head", "question_id"), [asked], (5,)).at == {5: 1.0}


def test_question_of_both_parts_with_different_passages_is_refused(tmp_path: Path) -> None:
    def question(city: str) -> Question:
        return Question(
            id="1", text="Where?", answers=(city,), dataset="world",
            context=(Passage(id=city, title="A", text=f"A is in {city}."),),
        )  # fmt: skip

    parts = {"train": question("Oslo"), "eval": question("Rome")}
    Corpus([passage for part in parts.values() for passage in part.context]).save(tmp_path / "corpus/passages.jsonl")
    for part, asked in parts.items():
        write_jsonl(tmp_path / f"corpus/questions.{part}.jsonl", Question, [asked])
    with pytest.raises(UserError, match="question 1 is in dataset.train and in dataset.eval with different passages"):
        load_method("contexts").load(tmp_path, NoSettings())
