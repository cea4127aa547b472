"""The methods over a hypergraph against a brute-force reading of their formulas over all hyperedges."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.config.errors import UserError
from platform_sdk.config.graph import GraphSpec
from platform_sdk.config.retrieval import GRAPH_METHODS, RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.data.dataset import read_corpus, read_triples
from platform_sdk.graph.build import add, build
from platform_sdk.graph.facts import Extraction, Fact, Mention
from platform_sdk.graph.graph import Graph, Incidence, write_graph
from platform_sdk.graph.linking import EntityLinker
from platform_sdk.record_files import read_jsonl, write_jsonl
from platform_sdk.records import Evidence, Passage, Question, Source
from platform_sdk.retrieval.environments import build_retriever, open_retriever
from platform_sdk.retrieval.method import Index
from platform_sdk.retrieval.methods import graph_r1, prograph, reranked
from platform_sdk.retrieval.milvus import Vectors, rank
from platform_sdk.run_dir import RunDir
from platform_sdk.sampling.rollout import SearchRequest
from tests.retrieval.processes import Embeddings, served

VECTORS = st.sampled_from([(1, 0, 0), (0, 1, 0), (1, 1, 0), (1, -1, 0), (-1, 0, 0), (1, 1, 1), (0, 0, -1), (3, 1, 0)])


@dataclass(frozen=True)
class MemoryVectors(Vectors):
    """Vectors of a collection without Milvus."""

    matrix: np.ndarray = field(kw_only=True)

    def nearest(self, queries: np.ndarray, k: int, places: np.ndarray | None = None) -> list[list[tuple[int, float]]]:
        return [rank(query, range(self.rows), self.matrix, places)[:k] for query in queries]

    def fetch(self, rows: Sequence[int]) -> np.ndarray:
        assert len(set(rows)) == len(rows)
        return self.matrix[list(rows)]


def held(vectors: Sequence[tuple[int, ...]]) -> MemoryVectors:
    matrix = unit(np.array(vectors, dtype=np.float32).reshape(-1, 3))
    return MemoryVectors(None, "held", len(matrix), 0, RetrievalSpec(), None, matrix=matrix)  # type: ignore[arg-type]


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def incidence(rows: Sequence[Sequence[int]]) -> Incidence:
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Incidence(indptr, np.array([item for row in rows for item in row], dtype=np.int32))


class MemoryGraph:
    """A graph in memory: the entities of each hyperedge, and a vector of each entity and hyperedge."""

    digest = "drawn"

    def __init__(self, edges: list[set[int]], entities: list[Any], hyperedges: list[Any]) -> None:
        self.edges = [sorted(own) for own in edges]
        self.entities, self.hyperedges = held(entities), held(hyperedges)
        self.edge_entities = incidence(self.edges)
        self.entity_edges = incidence(
            [[row for row, own in enumerate(self.edges) if entity in own] for entity in range(len(entities))]
        )
        self.entity_ids = [f"v{row:02}" for row in range(len(entities))]
        self.entity_names = [f"name of {id}" for id in self.entity_ids]
        self.hyperedge_ids = [f"e{row:02}" for row in range(len(edges))]
        self.hyperedge_texts = self.hyperedge_ids
        self.hyperedge_sources = [Source(passage=f"p{row}") for row in range(len(edges))]

    def index(self, material: type[Any], given: Any, *more: Any) -> Index[Any, Any]:
        encoder: Any = None
        titles = {f"p{row}": f"title {row}" for row in range(len(self.edges))}
        vectors = {"entities": self.entities, "hyperedges": self.hyperedges}
        return Index(material("drawn", self, titles, *more), given, encoder, vectors)


@st.composite
def graphs(draw: st.DrawFn) -> MemoryGraph:
    """Graphs with entities in no hyperedge, hyperedges without entities, hubs, duplicates and equal vectors."""
    entities = draw(st.lists(VECTORS, min_size=1, max_size=8))
    edges = draw(st.lists(st.sets(st.integers(0, len(entities) - 1), max_size=4), min_size=1, max_size=14))
    if draw(st.booleans()):
        edges = [own | {0} for own in edges]
    return MemoryGraph(edges, entities, draw(st.lists(VECTORS, min_size=len(edges), max_size=len(edges))))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    lengths = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return round(float(a.astype(float) @ b.astype(float)) / lengths, 6) if lengths else 0.0


def brute_prograph(
    graph: MemoryGraph, linked: Sequence[int], query: np.ndarray, normalisation: str
) -> tuple[list[int], list[float], list[dict[str, Any]]]:
    """Rank all hyperedges; return their order, and R and the parts of each."""
    centre = np.mean([graph.entities.matrix[v].astype(float) for v in linked], axis=0) if linked else query
    query_edges = [own for own in graph.edges if set(own) & set(linked)]
    in_query_edges = Counter(v for own in query_edges for v in own)
    in_edges = Counter(v for own in graph.edges for v in own)
    totals, parts = [], []
    for own in graph.edges:
        s = {v: cosine(graph.entities.matrix[v], centre) if np.abs(centre).max() > 1e-9 else 0.0 for v in own}
        weights = {v: math.exp(s[v]) if normalisation == "softmax" else max(s[v], 0) for v in own}
        shares = {v: weights[v] / sum(weights.values()) if sum(weights.values()) else 0.0 for v in own}
        values = {v: math.log(1 + in_query_edges[v] / in_edges[v]) for v in own}
        totals.append(sum(shares[v] * values[v] for v in own))
        parts.append({f"v{v:02}": {"s": s[v], "S": shares[v], "I": values[v]} for v in own})
    near = [cosine(vector, query) for vector in graph.hyperedges.matrix]
    order = sorted(range(len(totals)), key=lambda row: (-round(totals[row], 9), -near[row], row))
    return order, totals, parts


@settings(max_examples=300, deadline=None)
@given(
    graphs(), st.data(), VECTORS, st.sampled_from(["softmax", "sum"]), st.integers(1, 16), st.sampled_from([1, 4, 99])
)
def test_prograph_equals_brute_force_over_all_hyperedges(
    graph: MemoryGraph, data: st.DataObject, vector: Any, normalisation: Any, k: int, reach: int
) -> None:
    everything = list(range(graph.entities.rows))
    linked = data.draw(st.one_of(st.just([]), st.just(everything), st.lists(st.sampled_from(everything), unique=True)))
    query = unit(np.array(vector, dtype=np.float32))
    order, totals, parts = brute_prograph(graph, linked, query, normalisation)

    given_settings = prograph.PrographSettings(normalisation=normalisation, link_similarity=None)
    index = graph.index(prograph.PrographMaterial, given_settings, EntityLinker([id] for id in graph.entity_ids))
    text = " and ".join(graph.entity_ids[row] for row in linked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prograph.Scorer.candidates, "__defaults__", (reach,))
        [found] = prograph.METHOD.find(index, [SearchRequest(text)], query[None], k)
    assert [hit.id for hit in found] == [graph.hyperedge_ids[row] for row in order[:k]]
    for hit, row in zip(found, order, strict=False):
        assert hit.score == pytest.approx(totals[row], abs=2e-6)
        assert hit.parts["entities"] == {v: pytest.approx(own, abs=2e-6) for v, own in parts[row].items()}
        assert hit.query_entities == tuple(graph.entity_ids[row] for row in linked)
        assert (hit.title, hit.source) == (f"title {row}", Source(passage=f"p{row}"))
        assert list(hit.entities) == [graph.entity_ids[v] for v in graph.edges[row]]


@settings(max_examples=150, deadline=None)
@given(graphs(), VECTORS, st.integers(1, 3), st.integers(1, 3), st.integers(1, 16))
def test_graph_r1_equals_brute_force_over_all_hyperedges(
    graph: MemoryGraph, vector: Any, entities: int, hyperedges: int, k: int
) -> None:
    query = unit(np.array(vector, dtype=np.float32))

    def nearest(vectors: MemoryVectors) -> list[int]:
        return sorted(range(vectors.rows), key=lambda row: (-cosine(vectors.matrix[row], query), row))

    by_entity = [0.0] * len(graph.edges)
    for place, entity in enumerate(nearest(graph.entities)[:entities], start=1):
        for row, own in enumerate(graph.edges):
            by_entity[row] += (entity in own) / place
    by_hyperedge = [0.0] * len(graph.edges)
    for place, row in enumerate(nearest(graph.hyperedges)[:hyperedges], start=1):
        by_hyperedge[row] = 1 / place
    totals = [first + second for first, second in zip(by_entity, by_hyperedge, strict=True)]
    near = [cosine(own, query) for own in graph.hyperedges.matrix]
    order = sorted(range(len(totals)), key=lambda row: (-round(totals[row], 9), -near[row], row))

    given_settings = graph_r1.GraphR1Settings(entities=entities, hyperedges=hyperedges)
    [found] = graph_r1.METHOD.find(
        graph.index(graph_r1.GraphMaterial, given_settings), [SearchRequest("any")], query[None], k
    )
    expected = [row for row in order if totals[row] > 0][:k]
    assert [hit.id for hit in found] == [graph.hyperedge_ids[row] for row in expected]
    for hit, row in zip(found, expected, strict=True):
        assert hit.score == pytest.approx(totals[row])
        assert hit.parts == pytest.approx({"entity": by_entity[row], "hyperedge": by_hyperedge[row]})


def test_prograph_links_near_entities_where_the_query_names_none() -> None:
    graph = MemoryGraph([{0, 1}, {2}], [(1, 0, 0), (1, 1, 0), (0, 1, 0)], [(1, 0, 0), (0, 1, 0)])
    query = unit(np.array([[1, 0, 0]], dtype=np.float32))

    def linked(text: str, **given: Any) -> tuple[str, ...] | None:
        material = graph.index(prograph.PrographMaterial, prograph.PrographSettings(**given), EntityLinker([["Oslo"]]))
        return prograph.METHOD.find(material, [SearchRequest(text)], query, 1)[0][0].query_entities

    assert linked("to oslo") == ("v00",)
    assert linked("elsewhere", link_similarity=0.7) == ("v00", "v01")  # cosines 1, 0.707107 and 0
    assert linked("elsewhere", link_similarity=0.7, link_maximum=1) == ("v00",)
    assert linked("elsewhere", link_similarity=0.71) == ("v00",)
    assert linked("elsewhere", link_similarity=None) == ()


def test_prograph_by_hand() -> None:
    """Oslo (v00) is in two hyperedges; v01 in one of them and in one without Oslo; v02 only apart from Oslo."""
    graph = MemoryGraph([{0, 1}, {0}, {1, 2}, {2}], [(1, 0, 0), (0, 1, 0), (0, 0, -1)], [(1, 0, 0)] * 4)
    material = graph.index(prograph.PrographMaterial, prograph.PrographSettings(), EntityLinker([["Oslo"]]))
    query = unit(np.array([[1, 0, 0]], dtype=np.float32))
    [found] = prograph.METHOD.find(material, [SearchRequest("Where is Oslo?")], query, 4)
    share = math.e / (math.e + 1)
    assert [hit.id for hit in found] == ["e01", "e00", "e02", "e03"]
    assert [hit.score for hit in found] == pytest.approx(
        [math.log(2), share * math.log(2) + (1 - share) * math.log(1.5), 0.5 * math.log(1.5), 0.0], abs=1e-6
    )
    assert found[3].parts == {"entities": {"v02": {"s": 0.0, "S": 1.0, "I": 0.0}}}


def test_prograph_reaches_a_hyperedge_that_ties_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """e02 and e03 tie at log(1 + 2/3); the latter, reached later, is nearer to the query."""
    graph = MemoryGraph([{0, 1, 2}, {0, 1, 2}, {1}, {2}], [(1, 0, 0)] * 3, [(1, 0, 0), (1, 0, 0), (0, 1, 0), (1, 0, 0)])
    material = graph.index(prograph.PrographMaterial, prograph.PrographSettings(), EntityLinker([["Oslo"]]))
    monkeypatch.setattr(prograph.Scorer.candidates, "__defaults__", (1,))
    query = unit(np.array([[1, 0, 0]], dtype=np.float32))
    [found] = prograph.METHOD.find(material, [SearchRequest("Oslo")], query, 3)
    assert [hit.id for hit in found] == ["e00", "e01", "e03"]


PASSAGES = [
    Passage(id="p0", title="Oslo", text="Oslo is in Norway. Ibsen died in Oslo."),
    Passage(id="p1", title="Skien", text="Ibsen was born in Skien."),
    Passage(id="p2", title="Lima", text="Lima is in Peru."),
]
FACTS = [("Oslo is in Norway.", 0, "Oslo", "Norway"), ("Ibsen died in Oslo.", 0, "Ibsen", "Oslo"),
         ("Ibsen was born in Skien.", 1, "Ibsen", "Skien"), ("Lima is in Peru.", 2, "Lima", "Peru")]  # fmt: skip
METHODS = ["none", "chunk", *GRAPH_METHODS]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    Corpus(PASSAGES).save(tmp_path / "corpus/passages.jsonl")
    facts = tuple(
        Fact(text=text, entities=tuple(Mention(name=name) for name in names), source=Source(passage=f"p{passage}"))
        for text, passage, *names in FACTS
    )
    write_jsonl(tmp_path / "facts.jsonl", Extraction, [Extraction(chunk="c", facts=facts)])
    write_graph(tmp_path / "graph", [tmp_path / "facts.jsonl"], extractor="given", version=1, inputs="")
    return tmp_path


def test_service_finds_what_the_process_finds_for_every_method(run_dir: Path) -> None:
    requests = [SearchRequest("Where was Ibsen born?"), SearchRequest("who knows")]
    with Embeddings() as cheap:
        specs = {method: cheap.spec().model_copy(update={"method": method}) for method in METHODS}
        expected: dict[str, list[list[Evidence]]] = {}
        for method, spec in specs.items():
            with open_retriever("anything", run_dir, spec, show_progress=False) as retriever:
                expected[method] = retriever.search(requests, 3)
        collections = tuple(
            CollectionSpec(name=method.replace("_", "-"), run_dir=run_dir, environment="anything", retrieval=spec)
            for method, spec in specs.items()
        )
        with served(ServiceSpec(collections=collections)) as url:
            for method in METHODS:
                asked = RetrievalSpec(url=url, method=method, collection=method.replace("_", "-"))
                with build_retriever("anything", run_dir, asked) as remote:
                    assert remote.search(requests, 3) == expected[method]
    named, unnamed = expected["prograph"]
    graph = Graph.open(run_dir / "graph")
    ids = dict(zip(graph.entity_names, graph.entity_ids, strict=True))
    assert [hit.query_entities for hit in (*named, *unnamed)] == [(ids["Ibsen"],)] * 3 + [()] * 3
    assert {hit.text for hit in named} == {text for text, *_ in FACTS[:3]}
    assert {hit.title for hit in named} == {"Oslo", "Skien"}
    assert all(set(hit.entities) == set(hit.parts["entities"]) for hit in (*named, *unnamed))


class LengthEncoder:
    """A cross-encoder that prefers short passages."""

    def predict(self, pairs: Sequence[tuple[str, str]], **options: Any) -> list[float]:
        return [1 / len(text) for _, text in pairs]


@pytest.fixture(scope="module")
def graph_world(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated world with the graph of its passages, and questions with their own passages."""
    run_dir = shutil.copytree(world, tmp_path_factory.mktemp("graph") / "world")
    build(run_dir, GraphSpec())
    passages = read_corpus(run_dir).passages
    questions = [
        Question(id=f"q{at}", text="?", answers=("",), dataset="own", context=tuple(passages[at::2])) for at in range(2)
    ]
    write_jsonl(RunDir(run_dir).questions("train"), Question, questions)
    return run_dir


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("none", {}),
        ("passages", {}),
        ("chunk", {}),
        ("lexical", {}),
        ("contexts", {}),
        ("triples", {}),
        ("hyperedge", {}),
        ("graph_r1", {}),
        ("prograph", {}),
        ("linked", {"candidates": 4, "seeds": 3}),
        ("linked", {}),
        ("multi_query", {"base": "passages", "depth": 3}),
        ("multi_query", {}),
        ("reranked", {"base": "passages", "candidates": 3}),
    ],
)
def test_first_results_do_not_depend_on_the_number_of_results(
    graph_world: Path, method: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reranked.RerankedMaterial, "cross_encoder", LengthEncoder())
    texts = [question.text for question in read_jsonl(RunDir(graph_world).questions("eval"), Question)]
    heads = list(dict.fromkeys(triple.head for triple in read_triples(graph_world).triples))
    requests = [
        SearchRequest(text, {"question_id": f"q{at % 2}", "head": heads[at]})
        for at, text in enumerate([*texts, " ".join(texts[:3]), "who knows", ""])
    ]
    with Embeddings() as cheap:
        spec = cheap.spec().model_copy(update={"method": method, "settings": settings})
        with open_retriever("anything", graph_world, spec, show_progress=False) as retriever:
            everything = retriever.search(requests, 150)
            for k in (1, 2, 3, 4, 7, 10, 25, 60):
                assert retriever.search(requests, k) == [found[:k] for found in everything], k
    assert method == "none" or max(map(len, everything)) > 2


def test_hyperedges_of_added_passages_have_their_titles(tmp_path: Path) -> None:
    Corpus(PASSAGES).save(tmp_path / "corpus/passages.jsonl")
    TripleStore([]).save(tmp_path / "corpus/triples.jsonl")
    build(tmp_path, GraphSpec())
    new = Passage(id="p3", title="Amberfall", text="It was directed by Ida Roth.")
    Corpus([new]).save(tmp_path / "more.jsonl")
    add(tmp_path, GraphSpec(), tmp_path / "more.jsonl")
    with Embeddings() as cheap:
        spec = cheap.spec().model_copy(update={"method": "hyperedge"})
        with open_retriever("anything", tmp_path, spec, show_progress=False) as retriever:
            [found] = retriever.search([SearchRequest("Who directed Amberfall?")], 9)
    titles = {hit.text: hit.title for hit in found}
    assert (titles[new.text], titles["Lima is in Peru."]) == ("Amberfall", "Lima")


def test_graph_methods_without_a_graph_say_how_to_build_it(tmp_path: Path) -> None:
    for method in GRAPH_METHODS:
        with pytest.raises(UserError, match="contains no graph; build it first: hopforge graph build --recipe"):
            open_retriever("anything", tmp_path, RetrievalSpec(method=method))


def test_linked_walks_over_the_entities_of_a_graph_if_its_settings_ask_for_them(tmp_path: Path) -> None:
    Corpus(PASSAGES).save(tmp_path / "corpus/passages.jsonl")
    facts = tuple(
        Fact(text=f"{title} lives by the salt trade.", entities=(Mention(name=title), Mention(name="salt trade")),
             source=Source(passage=id))
        for title, id in (("Skien", "p1"), ("Lima", "p2"))
    )  # fmt: skip
    found: dict[bool, dict[str, Evidence]] = {}
    digests = set()
    with Embeddings() as cheap:
        spec = cheap.spec().model_copy(update={"method": "linked", "settings": {"seeds": 1, "graph": True}})
        with pytest.raises(UserError, match="contains no graph; build it first"):
            open_retriever("anything", tmp_path, spec)
        write_jsonl(tmp_path / "facts.jsonl", Extraction, [Extraction(chunk="c", facts=facts)])
        write_graph(tmp_path / "graph", [tmp_path / "facts.jsonl"], extractor="given", version=1, inputs="")
        for graph in (False, True):
            asked = spec.model_copy(update={"settings": {"seeds": 1, "graph": graph}})
            with open_retriever("anything", tmp_path, asked, show_progress=False) as retriever:
                [hits] = retriever.search([SearchRequest("Where in Skien was he born?")], 3)
                digests.add(retriever.corpus_digest)
            found[graph] = {hit.title: hit for hit in hits}
    assert (found[False]["Lima"].parts["links"], found[False]["Lima"].entities) == (0, ())
    assert found[True]["Lima"].entities == ("salt trade",)
    assert len(digests) == 2
