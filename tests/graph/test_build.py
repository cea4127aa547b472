"""Building graphs in shards, after a kill, and bit by bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from platform_sdk.config.graph import GraphSpec
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.errors import UserError
from platform_sdk.graph.build import add, build
from platform_sdk.graph.graph import Graph
from platform_sdk.records import Source, Triple
from tests.graph.conftest import PASSAGES, TRIPLES, PrepareRun
from tests.graph.scripted_model import scripted

ROOT = Path(__file__).parents[2]
SMALL = GraphSpec(chunk_tokens=16, overlap_tokens=8)


def edges(graph: Graph) -> dict[str, set[str]]:
    return {
        text: {graph.entity_names[v] for v in graph.edge_entities.row(e)}
        for e, text in enumerate(graph.hyperedge_texts)
    }


def test_rules_make_sentences_into_hyperedges_and_link_titles(prepare_run: PrepareRun) -> None:
    graph = build(prepare_run("run"), GraphSpec()).graph
    assert edges(graph) == {
        "Ada Lovelace (10 December 1815) wrote notes on the Analytical Engine.": {
            "Ada Lovelace", "10 December 1815", "Analytical Engine",
        },
        "She knew Dr. Charles Babbage well.": {"Ada Lovelace", "Dr. Charles Babbage"},
        "The Analytical Engine was designed by Charles Babbage.": {"Analytical Engine", "Charles Babbage"},
        "Conceiving Ada is a film of 1997 about Ada Lovelace.": {"Conceiving Ada (film)", "1997", "Ada Lovelace"},
        "Paris lies on the Seine.": {"Paris", "Seine"},
        "It is the capital of France.": {"Paris", "France"},
        "The Seine is long.": {"Paris", "Seine"},
        "The Seine flows through Paris and Rouen, e.g. past the Louvre in Paris.": {
            "Seine", "Paris", "Rouen", "Louvre",
        },
    }  # fmt: skip
    texts = {passage.id: passage.text for passage in PASSAGES}
    for text, source in zip(graph.hyperedge_texts, graph.hyperedge_sources, strict=True):
        assert texts[source.passage][source.start : source.end] == text


def test_triples_become_hyperedges_of_their_heads_passages(prepare_run: PrepareRun) -> None:
    graph = build(prepare_run("run"), GraphSpec(extractor="triples")).graph
    found = zip(graph.hyperedge_texts, graph.hyperedge_sources, strict=True)
    assert dict(found) == {
        "Paris, country, France": Source(passage="paris"),
        "Conceiving Ada, main subject, Ada Lovelace": Source(passage="film"),
        "Rouen, country, France": Source(passage=""),
    }
    assert edges(graph)["Rouen, country, France"] == {"Rouen", "France"}


def test_shards_and_order_do_not_change_the_digest(prepare_run: PrepareRun) -> None:
    built = [
        build(prepare_run(f"{shards}", passages), SMALL.model_copy(update={"shards": shards}))
        for shards, passages in ((1, PASSAGES), (2, PASSAGES[::-1]), (7, PASSAGES[2:] + PASSAGES[:2]))
    ]
    assert len({each.graph.digest for each in built}) == 1
    assert len({tuple(each.graph.manifest.files.items()) for each in built}) == 1
    assert {each.extracted for each in built} == {built[0].graph.manifest.chunks}


def test_added_passages_extract_their_own_chunks_only(prepare_run: PrepareRun, tmp_path: Path) -> None:
    whole = build(prepare_run("whole"), SMALL)
    run = prepare_run("run", PASSAGES[:3])
    first = build(run, SMALL)
    [log] = (run / "graph/extractions").glob("*.jsonl")
    before = log.read_bytes()
    Corpus(PASSAGES[2:]).save(tmp_path / "more.jsonl")  # one of them is there already
    added = add(run, SMALL, tmp_path / "more.jsonl")
    assert added.extracted == whole.extracted - first.extracted
    assert log.read_bytes().startswith(before)
    assert added.graph.digest == whole.graph.digest != first.graph.digest
    assert add(run, SMALL, tmp_path / "more.jsonl").extracted == 0
    assert build(run, SMALL).graph.digest == whole.graph.digest


def test_added_triples_give_the_graph_of_all(prepare_run: PrepareRun, tmp_path: Path) -> None:
    spec = GraphSpec(extractor="triples")
    run = prepare_run("run", triples=TRIPLES[:1])
    build(run, spec)
    TripleStore(TRIPLES[1:]).save(tmp_path / "more.jsonl")
    assert add(run, spec, tmp_path / "more.jsonl").graph.digest == build(prepare_run("whole"), spec).graph.digest


def test_added_passage_with_the_id_of_another_is_refused(prepare_run: PrepareRun, tmp_path: Path) -> None:
    Corpus([PASSAGES[0].model_copy(update={"text": "Another text."})]).save(tmp_path / "more.jsonl")
    with pytest.raises(UserError, match="passage ada is in the graph with another title or text"):
        add(prepare_run("run"), SMALL, tmp_path / "more.jsonl")


KILLED = """
import os, signal, sys
from pathlib import Path
from platform_sdk.config.graph import GraphSpec
from platform_sdk.graph import build as building
inner, chunks = building.rules.extract, []
def extract(chunk):
    chunks.append(chunk)
    if len(chunks) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(chunk)
building.rules.extract = extract
building.{call}
"""


@pytest.mark.parametrize("command", ["build", "add"])
def test_killed_extraction_is_resumed_per_chunk(command: str, prepare_run: PrepareRun, tmp_path: Path) -> None:
    whole = build(prepare_run("whole"), SMALL)
    run = prepare_run("run", PASSAGES if command == "build" else PASSAGES[4:])
    done = 0
    file = tmp_path / "more.jsonl"
    if command == "add":
        Corpus(PASSAGES[:4]).save(file)
        done = build(run, SMALL).extracted
    extra = f", Path({str(file)!r})" if command == "add" else ""
    call = f"{command}(Path({str(run)!r}), GraphSpec(chunk_tokens=16, overlap_tokens=8){extra})"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED.replace("{call}", call)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert killed.returncode == -signal.SIGKILL
    resumed = build(run, SMALL) if command == "build" else add(run, SMALL, file)
    assert resumed.extracted == whole.extracted - done - 3
    assert resumed.graph.digest == whole.graph.digest
    assert resumed.graph.manifest.chunks == whole.graph.manifest.chunks


def test_killed_merge_is_done_again_without_extracting(
    prepare_run: PrepareRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepare_run("run")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("platform_sdk.graph.merge._digest", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        build(run, SMALL)
    with pytest.raises(UserError, match="manifest"):
        Graph.open(run / "graph")
    again = build(run, SMALL)
    assert again.extracted == 0
    assert again.graph.digest == build(prepare_run("whole"), SMALL).graph.digest
    assert not list((run / "graph").glob(".merge-*"))


def test_graph_of_other_settings_is_refused(prepare_run: PrepareRun) -> None:
    run = prepare_run("run")
    build(run, SMALL)
    with pytest.raises(UserError, match="begun with other settings"):
        build(run, GraphSpec(extractor="triples"))


def test_blank_triple_is_left_out(prepare_run: PrepareRun) -> None:
    run = prepare_run("run", triples=[Triple(head=" ", relation="r", tail="x"), *TRIPLES])
    assert build(run, GraphSpec(extractor="triples")).graph.manifest.hyperedges == 3


def test_model_extracts_facts_and_its_malformed_lines_are_kept_aside(
    prepare_run: PrepareRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[object] = []
    monkeypatch.setattr("platform_sdk.sampling.load.load_engine", lambda *arguments: loads.append(1) or scripted([]))
    spec = GraphSpec(extractor="llm", model="hopforge:world-base", max_tokens=1000)
    run = prepare_run("run", PASSAGES[:2])
    graph = build(run, spec).graph
    # The script says the same three facts of each passage: six hyperedges, since their sources differ.
    assert edges(graph) == {"Oslo lies in Norway.": {"Oslo", "Norway"}, "It is cold.": set(), "Yes.": set()}
    assert (graph.manifest.hyperedges, graph.manifest.malformed) == (6, 4)
    lines = [json.loads(line) for line in (run / "graph/malformed.jsonl").read_text().splitlines()]
    assert sorted(line["record"] for line in lines) == 2 * ["entity<|>Oslo<|>city"] + 2 * ["nonsense"]
    assert build(run, spec).graph.digest == graph.digest
    assert len(loads) == 1
