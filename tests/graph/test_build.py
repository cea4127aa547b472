"""Building graphs in shards, after a kill, and bit by bit."""

from __future__ import annotations

import fcntl
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from platform_sdk.config.graph import GraphSpec
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.errors import UserError
from platform_sdk.graph import rules
from platform_sdk.graph.build import add, build
from platform_sdk.graph.chunks import Chunk
from platform_sdk.graph.facts import Fact
from platform_sdk.graph.graph import MANIFEST, Graph
from platform_sdk.graph.stats import measure
from platform_sdk.record_files import RecordError
from platform_sdk.records import Passage, Source, Triple
from tests.e2e.runs import ROOT, environment
from tests.graph.conftest import PASSAGES, TRIPLES, PrepareRun
from tests.graph.killed import SPEC
from tests.graph.scripted_model import scripted

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


@pytest.mark.parametrize("loss", ["cut", "removed", "altered"])
def test_a_finished_shard_that_lost_facts_is_extracted_again(prepare_run: PrepareRun, loss: str) -> None:
    run = prepare_run("run")
    whole = build(run, SMALL).graph
    digest, hyperedges = whole.digest, len(whole.hyperedge_texts)
    (run / "graph" / MANIFEST).unlink()  # as a merge that was killed leaves it
    [log] = (run / "graph/extractions").glob("*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    if loss == "cut":
        log.write_bytes(b"".join(lines[: len(lines) // 2]))
    elif loss == "removed":
        log.unlink()
    else:  # of the same size, so that only the lines' digests tell
        log.write_bytes(log.read_bytes().replace(b"Seine", b"Rhine"))
        with pytest.raises(RecordError, match="was altered after it was written"):
            build(run, SMALL)
        return
    again = build(run, SMALL).graph
    assert (again.digest, len(again.hyperedge_texts)) == (digest, hyperedges)


def test_merge_beyond_its_memory_names_the_setting_to_raise(prepare_run: PrepareRun) -> None:
    with pytest.raises(UserError, match="needs more than 0.001 GB; raise graph.memory_gb"):
        build(prepare_run("run"), GraphSpec(memory_gb=0.001))


def test_triples_become_hyperedges_of_their_heads_passages(prepare_run: PrepareRun) -> None:
    graph = build(prepare_run("run"), GraphSpec(extractor="triples")).graph
    found = zip(graph.hyperedge_texts, graph.hyperedge_sources, strict=True)
    assert dict(found) == {
        "Paris, country, France": Source(passage="paris"),
        "Conceiving Ada, main subject, Ada Lovelace": Source(passage="film"),
        "Rouen, country, France": Source(passage=""),
    }
    assert edges(graph)["Rouen, country, France"] == {"Rouen", "France"}
    figures = measure(graph)
    names = ("passages", "passages_without_hyperedges", "hyperedges_without_passage")
    assert [figures[name] for name in names] == [6, 4, 1]


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


def test_changed_passage_is_refused_and_changes_nothing(prepare_run: PrepareRun, tmp_path: Path) -> None:
    run, file = prepare_run("run", PASSAGES[:2]), tmp_path / "more.jsonl"
    Corpus(PASSAGES[2:3]).save(file)
    before = add(run, SMALL, file).graph.digest
    for known in (PASSAGES[0], PASSAGES[2]):  # of the corpus, and added before
        for change in ({"text": "Another text."}, {"title": "Another title"}):
            Corpus([PASSAGES[5], known.model_copy(update=change)]).save(file)
            with pytest.raises(UserError, match=f"passage {known.id} is in the graph with another title or text"):
                add(run, SMALL, file)
    assert build(run, SMALL).graph.digest == before


@pytest.mark.parametrize("shards", [1, 7])
def test_added_passages_that_are_there_already_change_nothing(
    shards: int, prepare_run: PrepareRun, tmp_path: Path
) -> None:
    spec = SMALL.model_copy(update={"shards": shards})
    run = prepare_run("run")
    before = build(run, spec).graph.manifest
    Corpus(PASSAGES[3:1:-1]).save(tmp_path / "more.jsonl")
    added = add(run, spec, tmp_path / "more.jsonl")
    assert added.extracted == 0
    assert added.graph.manifest.model_copy(update={"inputs": before.inputs}) == before


def run_killed(command: str, run: Path, file: Path, kill_at: int) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "tests.graph.killed", command, str(run), str(file), str(kill_at)]
    return subprocess.run(arguments, cwd=ROOT, env=environment(), capture_output=True, text=True)


@pytest.mark.parametrize(
    ("command", "moments"),
    [
        pytest.param("build", 1, id="build"),
        pytest.param("add", 1, id="add"),
        pytest.param("build", 8, id="build-often", marks=pytest.mark.slow),
        pytest.param("add", 8, id="add-often", marks=pytest.mark.slow),
    ],
)
def test_command_killed_at_any_moment_is_resumed_to_the_same_graph(
    command: str, moments: int, prepare_run: PrepareRun, tmp_path: Path
) -> None:
    file = tmp_path / "more.jsonl"
    Corpus(PASSAGES[:4]).save(file)

    def prepared(name: str) -> Path:
        run = prepare_run(name, PASSAGES if command == "build" else PASSAGES[4:])
        if command == "add":
            build(run, SPEC)
        return run

    counted = run_killed(command, prepared("counted"), file, 0)
    expected = Graph.open(tmp_path / "counted/graph")
    rng = random.Random(f"{command} {moments}")
    for moment in range(moments):
        run = prepared(f"killed-{moment}")
        kills = sorted(rng.sample(range(1, int(counted.stdout) + 1), 2), reverse=True)
        for kill_at in kills:  # the second attempt may be done before it comes so far
            killed = run_killed(command, run, file, kill_at)
            ends = (-signal.SIGKILL,) if kill_at == kills[0] else (-signal.SIGKILL, 0)
            assert killed.returncode in ends, killed.stderr
        resumed = build(run, SPEC) if command == "build" else add(run, SPEC, file)
        assert resumed.graph.digest == expected.digest, kills
        assert resumed.graph.manifest == expected.manifest, kills
        assert not (run / "graph/.merge").exists(), kills


def test_killed_extraction_keeps_the_chunks_that_it_has(
    prepare_run: PrepareRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, whole = prepare_run("run"), build(prepare_run("whole"), SMALL)
    read: list[str] = []

    def extract(chunk: Chunk) -> tuple[Fact, ...]:
        read.append(chunk.id)
        if len(read) == 4:
            raise KeyboardInterrupt
        return rules.extract(chunk)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("platform_sdk.graph.build.rules", SimpleNamespace(extract=extract))
        build(run, SMALL)
    [log] = (run / "graph/extractions").glob("*.jsonl")
    with log.open("ab") as stream:
        stream.write(b'{"chunk":"cut sh')
    resumed = build(run, SMALL)
    assert resumed.extracted == whole.extracted - 3
    assert resumed.graph.digest == whole.graph.digest


def test_logs_hold_a_bounded_number_of_chunks(prepare_run: PrepareRun, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build(prepare_run("whole"), SMALL)
    monkeypatch.setattr("platform_sdk.graph.build.CHUNKS_PER_LOG", 2)
    built = build(prepare_run("run"), SMALL)
    logs = sorted((prepare_run("run") / "graph/extractions").glob("*.jsonl"))
    sizes = [len(log.read_bytes().splitlines()) - 1 for log in logs]
    assert max(sizes) == 2
    assert sum(sizes) == built.extracted
    assert built.graph.digest == whole.graph.digest


def test_graph_that_another_process_builds_is_left_alone(prepare_run: PrepareRun, tmp_path: Path) -> None:
    run = prepare_run("run")
    Corpus([Passage(id="new", title="New", text="New is new.")]).save(tmp_path / "more.jsonl")
    (run / "graph").mkdir()
    with (run / "graph/.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for call in (lambda: build(run, SMALL), lambda: add(run, SMALL, tmp_path / "more.jsonl")):
            with pytest.raises(UserError, match="another process builds this graph; wait for its end"):
                call()
    assert {path.name for path in (run / "graph").iterdir()} == {".lock"}
    assert build(run, SMALL).graph.digest == build(prepare_run("whole"), SMALL).graph.digest


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
    assert not (run / "graph/.merge").exists()


def test_graph_of_an_older_schema_is_built_again(prepare_run: PrepareRun) -> None:
    run = prepare_run("run")
    digest = build(run, SMALL).graph.digest
    manifest = run / "graph" / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "schema_version": 1}))
    with pytest.raises(UserError, match="a graph of schema 1, but this hopforge reads schema 2; build the graph again"):
        Graph.open(run / "graph")
    again = build(run, SMALL)
    assert (again.extracted, again.graph.digest) == (0, digest)


def _alter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\0")


def _rewrite(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: (folder / "mentions.parquet").unlink(), "mentions.parquet: is missing; build the graph again"),
        (lambda folder: _alter(folder / "entities.parquet"), "entities.parquet: was altered after it was written"),
        (lambda folder: (folder / MANIFEST).write_text('{"schema_ver'), "is not valid JSON"),
        (lambda folder: _rewrite(folder / MANIFEST, entities=999), "counts of entities, hyperedges and mentions"),
        (lambda folder: (_rewrite(folder / MANIFEST, files={}), _alter(folder / "entities.parquet")), "files: must be"),
    ],
)
def test_damaged_graph_is_refused_and_merged_again_by_build(
    prepare_run: PrepareRun, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object], told: str
) -> None:
    run = prepare_run("run")
    whole = build(run, SMALL).graph.manifest
    damage(run / "graph")
    with pytest.raises(UserError, match=told):
        Graph.open(run / "graph")
    again = build(run, SMALL)
    assert (again.extracted, again.graph.manifest) == (0, whole)
    assert "is merged again, since it was damaged" in caplog.text
    assert Graph.open(run / "graph").digest == whole.digest


def test_added_file_that_was_altered_is_refused(prepare_run: PrepareRun, tmp_path: Path) -> None:
    run = prepare_run("run", PASSAGES[:3])
    Corpus(PASSAGES[3:]).save(tmp_path / "more.jsonl")
    add(run, SMALL, tmp_path / "more.jsonl")
    [file] = (run / "graph/added").iterdir()
    file.write_bytes(file.read_bytes().replace(b"Louvre", b"Palace"))
    with pytest.raises(UserError, match=rf"{file.name}: its content was altered"):
        build(run, SMALL)


def test_graph_of_nothing_is_refused(prepare_run: PrepareRun, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to build a graph of; the extractor triples reads dataset.triples"):
        build(prepare_run("run", triples=[]), GraphSpec(extractor="triples"))
    assert build(prepare_run("run"), SMALL).graph.manifest.hyperedges  # nothing was begun with triples
    empty = prepare_run("without passages", [])
    with pytest.raises(UserError, match="nothing to build a graph of; the extractor rules reads dataset.corpus"):
        build(empty, SMALL)
    Corpus(PASSAGES[:1]).save(tmp_path / "more.jsonl")
    assert add(empty, SMALL, tmp_path / "more.jsonl").graph.manifest.passages == 1


def test_graph_of_other_settings_is_refused(prepare_run: PrepareRun, tmp_path: Path) -> None:
    run = prepare_run("run")
    build(run, SMALL)
    with pytest.raises(UserError, match="started with other settings"):
        build(run, GraphSpec(extractor="triples"))
    TripleStore(TRIPLES).save(tmp_path / "more.jsonl")
    with pytest.raises(UserError, match="graph.extractor rules, but the recipe's is triples"):
        add(run, GraphSpec(extractor="triples"), tmp_path / "more.jsonl")
    assert not (run / "graph/added").exists()


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


@pytest.mark.parametrize("name", ["g[1]x", "g?x", "g*"])
def test_graph_in_a_folder_with_a_pattern_for_its_name_has_its_own_passages(
    prepare_run: PrepareRun, tmp_path: Path, name: str
) -> None:
    wanted = build(prepare_run("g"), GraphSpec()).graph
    other = prepare_run("g1x", [Passage(id="p", title="Zed", text="Zed was born in Paris.")])
    build(other, GraphSpec())
    assert edges(build(prepare_run(name), GraphSpec()).graph) == edges(wanted)
