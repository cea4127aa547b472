"""Search by similarity, words and shared names: by hand, whatever the corpus's order, and in the service."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.data.corpus import Corpus
from platform_sdk.records import Evidence, Passage
from platform_sdk.retrieval.environments import build_retriever, open_retriever
from platform_sdk.retrieval.method import Index
from platform_sdk.retrieval.methods import linked
from platform_sdk.sampling.rollout import SearchRequest
from tests.retrieval.processes import Embeddings, served
from tests.retrieval.test_graph_methods import held, unit

TEXTS = {
    "Numb (song)": "A song that Ada Kahn wrote for a river festival.",
    "Ada Kahn": "A composer, born near the sea.",
    "Rivers": "Water that flows to a sea; a song of rivers is not one.",
    "Boats": "Wood that swims.",
    "Östersund": "A town in the north.",
}
PASSAGES = [Passage(id=f"p{at}", title=title, text=text) for at, (title, text) in enumerate(TEXTS.items())]


def searched(passages: Sequence[Passage], query: str, k: int = 10, **settings: Any) -> list[Evidence]:
    """Search passages that are all equally similar to the query."""
    index: Any = Index(
        linked.LinkedMaterial("digest", passages, 60), linked.LinkedSettings(**settings), None,  # type: ignore[arg-type]
        {"passages": held([(1, 0, 0)] * len(passages))},
    )  # fmt: skip
    [found] = linked.METHOD.find(index, [SearchRequest(query)], unit(np.array([[1, 0, 0]], dtype=np.float32)), k)
    return found


def test_linked_passage_is_found_through_the_title_that_a_found_passage_mentions() -> None:
    found = searched(PASSAGES, "Who wrote Numb?", seeds=2, damping=0.5)
    assert [hit.title for hit in found[:2]] == ["Numb (song)", "Ada Kahn"]
    assert (found[0].query_entities, found[1].entities) == (("Numb",), ("Ada Kahn",))
    # Half of the walks restart at Numb; the others go on to the name, and from it to Ada Kahn, its title, with 2/3.
    assert found[0].parts["rank"] == pytest.approx(2 / 3, abs=1e-5)
    assert found[1].parts["rank"] == pytest.approx(1 / 3, abs=1e-5)
    parts = {name: float(value) for name, value in found[1].parts.items() if not isinstance(value, dict)}
    assert parts["lexical"] == parts["title"] == 0
    assert found[1].score == pytest.approx(1 + 6 * np.log(1 + 200 * parts["rank"]), abs=1e-4)
    assert searched(PASSAGES, "Who wrote Numb?", spread=0)[1].score == 1


def test_search_without_known_words_or_with_one_passage_finds_what_there_is() -> None:
    for query in ("", "?", "zzz", "日本"):
        found = searched(PASSAGES, query)
        assert sorted(hit.id for hit in found) == ["p0", "p1", "p2", "p3", "p4"]
        assert found[0].query_entities == ()
    [one] = searched(PASSAGES[3:4], "boats", k=3)
    assert (one.title, one.parts["rank"]) == ("Boats", 1.0)
    assert searched(PASSAGES, "ÖSTERSUND, where?")[0].title == "Östersund"


def test_ties_go_by_id() -> None:
    twins = [Passage(id=id, title="", text="the same text") for id in ("b", "c", "a")]
    assert [hit.id for hit in searched(twins, "same text", k=2)] == ["a", "b"]


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with Embeddings() as server:
        yield server


def drawn_corpus(seed: int) -> list[Passage]:
    draw = random.Random(seed)
    names = [f"{first} {last}" for first in ("Ada", "Bela", "Cora") for last in ("Kahn", "Lund", "Moss", "Berg")]
    return [
        Passage(id=f"p{at}", title=draw.choice(names), text=f"{draw.choice(names)} met {draw.choice(names)} in May.")
        for at in range(40)
    ]


def test_results_do_not_depend_on_the_corpus_order_or_on_other_queries(tmp_path: Path, cheap: Embeddings) -> None:
    passages = drawn_corpus(1)
    requests = [SearchRequest(f"Who met {name}?") for name in ("Ada Kahn", "Cora Berg", "nobody", "Bela Moss")]
    spec = cheap.spec().model_copy(update={"method": "linked"})
    answers = []
    for order in range(3):
        run_dir = tmp_path / str(order)
        Corpus(random.Random(order).sample(passages, len(passages))).save(run_dir / "corpus/passages.jsonl")
        with open_retriever("anything", run_dir, spec, show_progress=False) as retriever:
            answers.append(retriever.search(requests, 7))
            assert [retriever.search([request], 7)[0] for request in requests] == answers[-1]
    assert answers[0] == answers[1] == answers[2]
    assert all(len(own) == 7 for own in answers[0])


@pytest.mark.parametrize("method", ["linked", "lexical"])
def test_service_finds_what_the_process_finds(tmp_path: Path, cheap: Embeddings, method: str) -> None:
    Corpus(PASSAGES).save(tmp_path / "corpus/passages.jsonl")
    requests = [SearchRequest("Who wrote Numb?"), SearchRequest("")]
    spec = cheap.spec().model_copy(update={"method": method})
    with open_retriever("anything", tmp_path, spec, show_progress=False) as retriever:
        expected = retriever.search(requests, 3)
    assert expected[0][0].title == "Numb (song)"
    collection = CollectionSpec(name="all", run_dir=tmp_path, environment="anything", retrieval=spec)
    with (
        served(ServiceSpec(collections=(collection,))) as url,
        build_retriever("anything", tmp_path, RetrievalSpec(url=url, method=method)) as remote,
    ):
        assert remote.search(requests, 3) == expected


def test_lexical_search_finds_passages_with_words_of_the_query_only(tmp_path: Path) -> None:
    Corpus(PASSAGES).save(tmp_path / "corpus/passages.jsonl")
    with open_retriever("anything", tmp_path, RetrievalSpec(method="lexical"), show_progress=False) as retriever:
        [found, nothing] = retriever.search([SearchRequest("the sea, the sea"), SearchRequest("日本")], 5)
    assert found[0].title == "Ada Kahn"
    assert {hit.title for hit in found} == {"Ada Kahn", "Rivers", "Östersund"}
    assert nothing == []
    empty = tmp_path / "empty"
    Corpus([]).save(empty / "corpus/passages.jsonl")
    with pytest.raises(UserError, match="holds no passages to search"):
        open_retriever("anything", empty, RetrievalSpec(method="lexical"))
