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


def searched(
    passages: Sequence[Passage],
    query: str,
    k: int = 10,
    nearest: float = 0,
    vectors: Sequence[Any] = (),
    **settings: Any,
) -> list[Evidence]:
    """Search passages that are all equally similar to the query, unless ``vectors`` are given."""
    index: Any = Index(
        linked.LinkedMaterial("digest", passages, 60), linked.LinkedSettings(nearest=nearest, **settings),
        None,  # type: ignore[arg-type]
        {"passages": held(vectors or [(1, 0, 0)] * len(passages))},
    )  # fmt: skip
    [found] = linked.METHOD.find(index, [SearchRequest(query)], unit(np.array([[1, 0, 0]], dtype=np.float32)), k)
    return found


def test_linked_passage_is_found_through_the_title_that_a_found_passage_mentions() -> None:
    found = searched(PASSAGES, "Who wrote Numb?", seeds=2, damping=0.5)
    assert [hit.title for hit in found[:2]] == ["Numb (song)", "Ada Kahn"]
    assert (found[0].query_entities, found[1].entities) == (("Numb",), ("Ada Kahn",))
    # Half of the walks restart at Numb; the others go on to the name, and from it to Ada Kahn, its title, with 10/11.
    first, second = (
        {name: value for name, value in hit.parts.items() if isinstance(value, float)} for hit in found[:2]
    )
    assert first["links"] == pytest.approx(3.5 * np.log(1 + 200 * 6 / 11), abs=1e-3)
    assert second["links"] == pytest.approx(3.5 * np.log(1 + 200 * 5 / 11), abs=1e-3)
    # All vectors are equal, so each passage is as similar to the query as to the best passages.
    assert (second["similarity"], second["missing words"], second["repeated"]) == (1, 0, pytest.approx(-0.6))
    assert second.keys() == {"similarity", "links", "missing words", "repeated", "nearest"}
    assert found[1].score == pytest.approx(sum(second.values()), abs=1e-5)
    assert searched(PASSAGES, "Who wrote Numb?", spread=0)[1].score == pytest.approx(0.4)


def test_walk_leaves_a_passage_by_its_mentions_and_not_to_passages_that_mention_it() -> None:
    texts = {"Oslo": "A city near Lake Mjosa.", "Lake Mjosa": "A lake.", "Trams": "Cars that Oslo has."}
    passages = [Passage(id=title, title=title, text=text) for title, text in texts.items()]
    links = {hit.title: hit.parts["links"] for hit in searched(passages, "Where is Oslo?", seeds=1)}
    assert links["Lake Mjosa"] > links["Trams"] > 0


def test_passages_with_words_that_the_best_ones_lack_come_before_repetitions() -> None:
    texts = {"a": "Ada wrote a song.", "b": "Ada wrote a tune.", "c": "A festival by a river.", "d": "Boats swim."}
    passages = [Passage(id=id, title="", text=text) for id, text in texts.items()]
    found = searched(passages, "Which festival heard what Ada wrote?", seeds=2, spread=0)
    assert [hit.id for hit in found] == ["c", "a", "b", "d"]
    assert found[3].parts["missing words"] == 0


def test_most_similar_passages_get_a_bonus_by_their_rank() -> None:
    vectors = [(1, 0, 0), (0.6, 0.8, 0), (0, 1, 0), (0.8, 0.6, 0), (0, 0, 1)]
    found = searched(PASSAGES, "Who wrote Numb?", nearest=6, vectors=vectors)
    bonus = {hit.id: hit.parts["nearest"] for hit in found}
    assert bonus == {"p0": 6, "p3": 3, "p1": 2, "p2": 1.5, "p4": 1.2}
    without = {hit.id: hit.score for hit in searched(PASSAGES, "Who wrote Numb?", vectors=vectors)}
    assert {hit.id: hit.score - without[hit.id] for hit in found} == pytest.approx(bonus, abs=1e-5)


def test_query_without_a_name_is_searched_by_similarity_alone() -> None:
    found = searched(PASSAGES, "who wrote it?")
    assert [hit.id for hit in found] == ["p0", "p1", "p2", "p3", "p4"]
    assert [hit.parts for hit in found] == [{}] * 5
    assert found[0].entities == ()


def test_search_without_known_words_or_with_one_passage_finds_every_passage() -> None:
    for query in ("", "?", "zzz", "Zz Zz", "日本"):
        found = searched(PASSAGES, query)
        assert sorted(hit.id for hit in found) == ["p0", "p1", "p2", "p3", "p4"]
        assert not found[0].query_entities
    [one] = searched(PASSAGES[3:4], "Are Boats wood?", k=3)
    assert (one.title, one.parts["links"]) == ("Boats", pytest.approx(3.5 * np.log(201), abs=1e-5))
    assert searched(PASSAGES, "ÖSTERSUND, where?")[0].title == "Östersund"


def test_ties_go_by_id() -> None:
    twins = [Passage(id=id, title="", text="the same text") for id in ("b", "c", "a")]
    assert [hit.id for hit in searched(twins, "The Same text", k=2)] == ["a", "b"]


def drawn_corpus(seed: int) -> list[Passage]:
    draw = random.Random(seed)
    names = [f"{first} {last}" for first in ("Ada", "Bela", "Cora") for last in ("Kahn", "Lund", "Moss", "Berg")]
    return [
        Passage(id=f"p{at}", title=draw.choice(names), text=f"{draw.choice(names)} met {draw.choice(names)} in May.")
        for at in range(40)
    ]


def test_results_do_not_depend_on_the_corpus_order_or_on_other_queries(tmp_path: Path, embeddings: Embeddings) -> None:
    passages = drawn_corpus(1)
    requests = [SearchRequest(f"Who met {name}?") for name in ("Ada Kahn", "Cora Berg", "nobody", "Bela Moss")]
    requests.append(SearchRequest("met in may"))
    spec = embeddings.spec().model_copy(update={"method": "linked"})
    answers = []
    for order in range(3):
        run_dir = tmp_path / str(order)
        Corpus(random.Random(order).sample(passages, len(passages))).save(run_dir / "corpus/passages.jsonl")
        with open_retriever("anything", run_dir, spec, show_progress=False) as retriever:
            answers.append(retriever.search(requests, 7))
            assert [retriever.search([request], 7)[0] for request in requests] == answers[-1]
    assert answers[0] == answers[1] == answers[2]
    assert all(len(own) == 7 for own in answers[0])


@pytest.mark.parametrize("query", ["zzz", "Zz Zz"])
def test_ties_among_more_passages_than_candidates_go_by_id_in_any_corpus_order(
    tmp_path: Path, embeddings: Embeddings, query: str
) -> None:
    twins = [Passage(id=f"p{at:02}", title="", text="the same text") for at in range(50)]
    spec = embeddings.spec().model_copy(update={"method": "linked"})
    for order in range(2):
        run_dir = tmp_path / str(order)
        Corpus(random.Random(order).sample(twins, len(twins))).save(run_dir / "corpus/passages.jsonl")
        with open_retriever("anything", run_dir, spec, show_progress=False) as retriever:
            [found] = retriever.search([SearchRequest(query)], 3)
        assert [hit.id for hit in found] == ["p00", "p01", "p02"]


@pytest.mark.parametrize("method", ["linked", "lexical", "multi_query"])
def test_service_finds_what_the_process_finds(tmp_path: Path, embeddings: Embeddings, method: str) -> None:
    Corpus(PASSAGES).save(tmp_path / "corpus/passages.jsonl")
    requests = [
        SearchRequest("Who wrote Numb?"),
        SearchRequest("Who wrote Numb?\nWhere is Östersund?"),
        SearchRequest(""),
    ]
    spec = embeddings.spec().model_copy(update={"method": method})
    with open_retriever("anything", tmp_path, spec, show_progress=False) as retriever:
        expected = retriever.search(requests, 3)
    # The test's vectors do not depend on the meaning, so similarity may outweigh the title.
    assert "Numb (song)" in [hit.title for hit in expected[0]]
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
