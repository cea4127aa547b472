"""The retrievers over a prepared run directory, with the real encoder and Milvus Lite."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.data.dataset import read_corpus
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Evidence, Passage, Question, Triple
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.index import build_index
from platform_sdk.retrieval.recall import Recall, measure_recall
from platform_sdk.sampling.rollout import SearchRequest

SPEC = RetrievalSpec(threads=1)
TRIPLES = [
    Triple(head="Ada Kahn", relation="place of birth", tail="Oslo"),
    Triple(head="Ada Kahn", relation="occupation", tail="painter"),
    Triple(head="Ada Kahn", relation="spouse", tail="Bela Lund"),
    Triple(head="Bela Lund", relation="place of birth", tail="Lima"),
    Triple(head="Bela Lund", relation="occupation", tail="pilot"),
    Triple(head="Oslo", relation="country", tail="Norway"),
]


@pytest.fixture
def run_dir(tmp_path: Path, sentences: list[str]) -> Path:
    passages = [
        Passage(id=f"p{at}", title=text.split(" is ")[0] + f" ({at % 7})", text=text)
        for at, text in enumerate(sentences)
    ]
    questions = [
        Question(id="q0", text="Where was Ada Kahn's spouse born?", answers=("Lima",), dataset="test",
                 gold_passages=(passages[0].title,), gold_triples=(TRIPLES[2], TRIPLES[3]),
                 context=tuple(passages[:10])),
        Question(id="q1", text="Who paints in Oslo?", answers=("Ada Kahn",), dataset="test",
                 gold_passages=("nowhere to be found", passages[14].title), context=tuple(passages[5:25])),
        Question(id="q2", text="Without gold?", answers=("no",), dataset="test"),
    ]  # fmt: skip
    write_jsonl(tmp_path / "corpus/passages.jsonl", Passage, passages)
    write_jsonl(tmp_path / "corpus/triples.jsonl", Triple, TRIPLES)
    write_jsonl(tmp_path / "corpus/questions.eval.jsonl", Question, questions)
    return tmp_path


def nearest(encoder: Encoder, query: str, texts: list[str], k: int) -> list[tuple[int, float]]:
    """Brute force: (place, score) of the k nearest, equal scores in order of place."""
    query_vector = encoder.encode([query], kind="query")[0].astype(np.float64)
    scores = np.round(encoder.encode(texts, kind="passage").astype(np.float64) @ query_vector, 6)
    return sorted(((at, float(score)) for at, score in enumerate(scores)), key=lambda hit: (-hit[1], hit[0]))[:k]


def test_passages_are_the_nearest_of_the_corpus(run_dir: Path, encoder: Encoder) -> None:
    passages = Corpus.load(run_dir / "corpus/passages.jsonl").passages
    with open_retriever("hotpot", run_dir, SPEC, show_progress=False) as retriever:
        assert retriever.corpus_digest == Corpus.load(run_dir / "corpus/passages.jsonl").digest
        asked = ["Who was born in Kyoto?", "Which Moss is a judge?"]
        found = retriever.search([SearchRequest(query) for query in asked], 4)
        assert retriever.search([], 4) == []
    texts = [f"{passage.title}\n{passage.text}" for passage in passages]
    for query, hits in zip(asked, found, strict=True):
        assert hits == [
            Evidence(kind="passage", id=passages[at].id, title=passages[at].title, text=passages[at].text, score=score)
            for at, score in nearest(encoder, query, texts, 4)
        ]


def test_a_graph_search_ranks_the_triples_of_its_head_only(run_dir: Path, encoder: Encoder) -> None:
    store = TripleStore.load(run_dir / "corpus/triples.jsonl")
    question = "Who is the spouse of Ada Kahn?"
    with open_retriever("2wiki-kg", run_dir, SPEC, show_progress=False) as retriever:
        assert retriever.corpus_digest == store.digest
        spouse, everything, born, unknown = (
            retriever.search([SearchRequest(question, {"head": "Ada Kahn"})], 1)[0],
            *retriever.search(
                [
                    SearchRequest(question, {"head": "Ada Kahn"}),
                    SearchRequest("Where was he born?", {"head": "Bela Lund"}),
                    SearchRequest(question, {"head": "Nobody"}),
                ],
                10,
            ),
        )
        with pytest.raises(ValueError, match="method triples needs head in the scope"):
            retriever.search([SearchRequest(question)], 1)
        with pytest.raises(ValueError, match="k must be 1 or more"):
            retriever.search([SearchRequest(question, {"head": "Oslo"})], 0)
    assert [hit.text for hit in spouse] == ["Ada Kahn, spouse, Bela Lund"]
    expected = nearest(encoder, question, [triple.text for triple in TRIPLES[:3]], 10)
    assert [(hit.text, hit.score) for hit in everything] == [(TRIPLES[at].text, score) for at, score in expected]
    assert {(hit.kind, hit.title, hit.entities) for hit in everything} == {
        ("triple", triple.tail, (triple.head, triple.tail)) for triple in TRIPLES[:3]
    }
    assert born[0].text == "Bela Lund, place of birth, Lima"
    assert len(born) == 2
    assert unknown == []


def test_a_questions_own_passages_are_searched_and_no_others(run_dir: Path, encoder: Encoder) -> None:
    passages = Corpus.load(run_dir / "corpus/passages.jsonl").passages
    query = "Who was born in Rome?"
    with open_retriever("hotpot-kimi", run_dir, SPEC, show_progress=False) as retriever:
        requests = [SearchRequest(query, {"question_id": "q0"}), SearchRequest(query, {"question_id": "q1"})]
        first, second = retriever.search(requests, 3)
        with pytest.raises(ValueError, match="question 'q9' .question_id. has no passages"):
            retriever.search([SearchRequest(query, {"question_id": "q9"})], 3)
    for hits, start, end in ((first, 0, 10), (second, 5, 25)):
        texts = [f"{passage.title}\n{passage.text}" for passage in passages[start:end]]
        expected = nearest(encoder, query, texts, 3)
        assert [(hit.id, hit.score) for hit in hits] == [(f"p{start + at}", score) for at, score in expected]


@pytest.mark.parametrize("environment", ["hotpot", "world-kg", "hotpot-kimi"])
def test_search_results_do_not_depend_on_batch_or_process(run_dir: Path, environment: str) -> None:
    requests = [
        SearchRequest(f"{word} was {verb} in Oslo?", {"head": head, "question_id": question})
        for word in ("Who", "What painter", "Where and when and why")
        for verb in ("born", "never at all seen")
        for head, question in (("Ada Kahn", "q0"), ("Bela Lund", "q1"))
    ]
    with open_retriever(environment, run_dir, SPEC, show_progress=False) as retriever:
        together = retriever.search(requests, 3)
    with open_retriever(environment, run_dir, SPEC, show_progress=False) as retriever:
        assert [retriever.search([request], 3)[0] for request in reversed(requests)] == together[::-1]


def test_the_index_step_is_quick_when_done(run_dir: Path, encoder: Encoder) -> None:
    first = build_index(run_dir, SPEC, "musique", show_progress=False)
    assert (first.method, first.rows, first.added, first.encoder_digest) == ("passages", 105, 105, encoder.digest)
    again = build_index(run_dir, SPEC, "musique", show_progress=False)
    assert (again.collection, again.rows, again.added) == (first.collection, 105, 0)
    graph = build_index(run_dir, SPEC, "qald-kg", show_progress=False)
    assert (graph.method, graph.rows, graph.added) == ("triples", 6, 6)
    assert graph.corpus_digest == TripleStore.load(run_dir / "corpus/triples.jsonl").digest


def test_data_with_another_digest_than_prepared_is_refused(run_dir: Path) -> None:
    digests = {"passages": Corpus.load(run_dir / "corpus/passages.jsonl").digest, "triples": "0" * 64}
    (run_dir / "corpus/digests.json").write_text(json.dumps(digests))
    assert read_corpus(run_dir).digest == digests["passages"]
    with pytest.raises(UserError, match=r"triples.jsonl has digest .* but 0000000000000000… was prepared"):
        build_index(run_dir, SPEC, "2wiki-kg")


def test_own_passages_must_be_in_the_corpus(run_dir: Path, sentences: list[str]) -> None:
    few = Corpus.load(run_dir / "corpus/passages.jsonl").passages[:12]
    write_jsonl(run_dir / "corpus/passages.jsonl", Passage, few)
    with pytest.raises(
        UserError, match=r"question q1 has passages that are not in the corpus; leave dataset.corpus out"
    ):
        open_retriever("hotpot-kimi", run_dir, SPEC, show_progress=False)


def test_environments_with_nothing_to_search_are_refused(run_dir: Path) -> None:
    with pytest.raises(
        UserError, match="'distractor' has nothing to search; the environments are own-text, own-kg, 2wiki-text"
    ):
        build_index(run_dir, SPEC, "distractor")
    write_jsonl(run_dir / "corpus/triples.jsonl", Triple, [])
    with pytest.raises(UserError, match="retrieval method triples searches triples, and there are none"):
        build_index(run_dir, SPEC, "qald-kg")


def test_recall_is_the_share_of_gold_evidence_among_the_first_k(run_dir: Path) -> None:
    from platform_sdk.record_files import read_jsonl

    questions = list(read_jsonl(run_dir / "corpus/questions.eval.jsonl", Question))
    with open_retriever("hotpot", run_dir, SPEC, show_progress=False) as retriever:
        found = measure_recall(retriever, (), questions, (1, 105))
        hits = retriever.search([SearchRequest(question.text) for question in questions[:2]], 1)
        expected = (
            sum(
                (h[0].title in q.gold_passages) / len(q.gold_passages) for h, q in zip(hits, questions[:2], strict=True)
            )
            / 2
        )
        assert (found.n, found.without_gold) == (2, 1)
        assert found.at == {1: expected, 105: (1 + 0.5) / 2}
        assert found.intervals[105][0] >= 0.5
        assert found.intervals[105][1] <= 1
        with pytest.raises(UserError, match="each 1 or more"):
            measure_recall(retriever, (), questions, (0,))
        with pytest.raises(UserError, match="none of the 1 evaluation questions names gold evidence"):
            measure_recall(retriever, (), questions[2:], (1,))
    with open_retriever("2wiki-kg", run_dir, SPEC, show_progress=False) as retriever:
        graph = measure_recall(retriever, ("head",), questions, (1, 3))
        assert (graph.n, graph.at[3]) == (1, 1.0)
        tops = [
            retriever.search([SearchRequest(questions[0].text, {"head": h})], 1)[0][0].text
            for h in ("Ada Kahn", "Bela Lund")
        ]
        assert graph.at[1] == sum(top in (TRIPLES[2].text, TRIPLES[3].text) for top in tops) / 2


def test_recall_is_compared_by_question_and_not_by_place() -> None:
    first, second = Recall(0, {5: {"a": 1.0, "b": 0.0, "c": 0.5}}), Recall(0, {5: {"c": 0.5, "b": 0.0, "a": 1.0}})
    change = first.compare(second)[5]
    assert (change.difference, change.low, change.high) == (0, 0, 0)
    with pytest.raises(UserError, match="the methods count different questions"):
        first.compare(Recall(0, {5: {"a": 1.0, "b": 0.0, "d": 0.5}}))
