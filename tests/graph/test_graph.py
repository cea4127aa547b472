"""Merging facts into a graph, its files and their digests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from platform_sdk.errors import UserError
from platform_sdk.graph import merge
from platform_sdk.graph.facts import Extraction, Fact, Mention
from platform_sdk.graph.graph import Graph, write_graph
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Source
from tests.graph.small import graph_of

BORN = Fact(
    text="President Barack Obama was born in Honolulu.",
    entities=(
        Mention(name="President Barack Obama", rule="span"),
        Mention(name="Honolulu", type="city", description="On an island."),
    ),
    source=Source(passage="p1", start=0, end=44),
)
FILM = Fact(
    text="Cold Mountain opened in HONOLULU.",
    entities=(
        Mention(name="Cold Mountain", rule="span"),
        Mention(name="HONOLULU.", description="A port.", alias="HNL"),
    ),
    source=Source(passage="p2", start=0, end=33),
)
LONELY = Fact(text="Nothing is known.", entities=(), source=Source(passage="p3"))
TITLES = [("Barack Obama", "p8"), ("Cold Mountain (film)", "p9")]


def write(path: Path, *facts: Fact) -> Path:
    write_jsonl(path, Extraction, [Extraction(chunk=fact.source.passage, facts=(fact,)) for fact in facts])
    return path


def test_graph_merges_entities_by_normalised_name_and_links_spans_to_titles() -> None:
    graph = graph_of([BORN, FILM, LONELY, BORN], TITLES)
    entities = {
        name: (aliases, text)
        for name, aliases, text in zip(graph.entity_names, graph.entity_aliases, graph.entity_texts, strict=True)
    }
    assert entities == {
        "Barack Obama": ((), "Barack Obama"),
        "President Barack Obama": ((), "President Barack Obama"),
        "Cold Mountain (film)": (("Cold Mountain",), "Cold Mountain (film)"),
        # Names that are equally frequent are taken in alphabetical order, like descriptions.
        "HONOLULU.": (("HNL",), "HONOLULU. (city): A port. On an island."),
    }
    names = dict(zip(graph.entity_ids, graph.entity_names, strict=True))
    rules = {(names[row["entity"]], row["name"], row["rule"]) for row in graph.mentions.read().to_pylist()}
    assert rules == {
        ("President Barack Obama", "President Barack Obama", "span"),
        ("Barack Obama", "President Barack Obama", "within"),
        ("Cold Mountain (film)", "Cold Mountain", "alias"),
        ("HONOLULU.", "Honolulu", "given"),
        ("HONOLULU.", "HONOLULU.", "given"),
    }
    members = {
        graph.hyperedge_texts[edge]: {graph.entity_names[v] for v in graph.edge_entities.row(edge)} for edge in range(3)
    }
    assert members == {
        BORN.text: {"President Barack Obama", "Barack Obama", "HONOLULU."},
        FILM.text: {"Cold Mountain (film)", "HONOLULU."},
        LONELY.text: set(),
    }
    assert set(graph.hyperedge_sources) == {BORN.source, FILM.source, LONELY.source}
    assert list(graph.hyperedge_ids) == sorted(graph.hyperedge_ids)
    assert list(graph.entity_ids) == sorted(names)


def test_incidence_of_entities_is_the_transpose_with_ascending_rows() -> None:
    rng = random.Random(3)
    facts = [
        Fact(
            text=f"fact {i}",
            entities=tuple(Mention(name=f"n{rng.randrange(12)}") for _ in range(rng.randrange(5))),
            source=Source(passage="p"),
        )
        for i in range(40)
    ]
    graph = graph_of(facts)
    pairs = [(e, int(v)) for e in range(40) for v in graph.edge_entities.row(e)]
    transposed = [(int(e), v) for v in range(len(graph.entity_ids)) for e in graph.entity_edges.row(v)]
    assert pairs == sorted(set(pairs))
    assert sorted(transposed) == pairs
    assert transposed == sorted(transposed, key=lambda pair: (pair[1], pair[0]))
    given = {(fact.text, mention.name) for fact in facts for mention in fact.entities}
    assert {(graph.hyperedge_texts[e], graph.entity_names[v]) for e, v in pairs} == given


def test_every_row_of_a_graph_whose_facts_have_one_entity_each_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "ROWS", 1000)  # written in several batches
    count = 5000
    facts = [
        Fact(text=f"fact {i}", entities=(Mention(name=f"n{i}"),), source=Source(passage="p")) for i in range(count)
    ]
    graph = graph_of(facts)
    names = graph.entity_names
    found = {graph.hyperedge_texts[e]: [names[v] for v in graph.edge_entities.row(e)] for e in range(count)}
    assert found == {f"fact {i}": [f"n{i}"] for i in range(count)}
    assert {len(graph.entity_edges.row(v)) for v in range(count)} == {1}


def test_graph_is_the_same_in_any_order_and_any_number_of_files(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", BORN, FILM, LONELY)
    some = [write(tmp_path / "a.jsonl", LONELY), write(tmp_path / "b.jsonl", FILM, BORN, FILM)]
    first = write_graph(tmp_path / "1", [one], titles=TITLES, extractor="given", version=1, inputs="i")
    second = write_graph(tmp_path / "2", some, titles=TITLES[::-1], extractor="given", version=1, inputs="i")
    assert first.manifest == second.manifest
    assert (first.manifest.entities, first.manifest.hyperedges, first.manifest.mentions) == (4, 3, 5)
    assert graph_of([FILM], TITLES).digest != graph_of([BORN], TITLES).digest
    reopened = Graph.open(tmp_path / "2")
    assert reopened.digest == first.digest == graph_of([LONELY, BORN, FILM], TITLES).digest
    assert list(reopened.entity_texts) == [reopened.entity_texts[i] for i in range(4)]


def test_equal_malformed_records_of_a_chunk_all_count(tmp_path: Path) -> None:
    read = Extraction(chunk="c", facts=(BORN, FILM), malformed=("nonsense", "nonsense"))
    for name in ("a.jsonl", "b.jsonl"):  # a chunk that two logs have is one
        write_jsonl(tmp_path / name, Extraction, [read])
    graph = write_graph(
        tmp_path / "graph", [tmp_path / "a.jsonl", tmp_path / "b.jsonl"], extractor="given", version=1, inputs="i"
    )
    assert (graph.manifest.chunks, graph.manifest.malformed) == (1, 2)
    assert (tmp_path / "graph/malformed.jsonl").read_text().count("nonsense") == 2


def test_empty_graph_has_empty_rows() -> None:
    graph = graph_of([])
    assert len(graph.entity_ids) == len(graph.hyperedge_texts) == len(graph.entity_edges.indices) == 0


@pytest.mark.parametrize("name", ["entities.parquet", "edge_entities.indices.npy"])
def test_altered_graph_is_refused(tmp_path: Path, name: str) -> None:
    write_graph(tmp_path, [write(tmp_path / "f.jsonl", BORN)], extractor="given", version=1, inputs="i")
    content = bytearray((tmp_path / name).read_bytes())
    content[-1] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        Graph.open(tmp_path)
