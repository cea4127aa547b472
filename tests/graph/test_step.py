"""The step ``graph`` of a run: which files of the graph's folder are sealed."""

from __future__ import annotations

import json
from pathlib import Path

from platform_sdk.config.graph import GraphSpec
from platform_sdk.data.corpus import Corpus
from platform_sdk.files import read_model
from platform_sdk.graph.build import ExtractStep, add, build, extract_shard
from platform_sdk.processes.launch import StepProcesses
from platform_sdk.steps import graph
from platform_sdk.tracking import finish_run, start_run
from platform_sdk.tracking.verify import verify_run
from tests.graph.conftest import PASSAGES, PrepareRun
from tests.tracking.small_run import RECIPE


def extract_all(processes: StepProcesses) -> None:
    step = read_model(processes.spec_file, ExtractStep)
    for shard in range(step.spec.shards):
        extract_shard(step, shard)


def test_finished_run_with_added_passages_and_extraction_in_processes_is_whole(
    prepare_run: PrepareRun, tmp_path: Path
) -> None:
    run_dir, more = prepare_run("run", PASSAGES[2:]), tmp_path / "more.jsonl"
    build(run_dir, GraphSpec(), extract_all)
    Corpus(PASSAGES[:2]).save(more)
    add(run_dir, GraphSpec(), more)
    (run_dir / "recipe.json").write_text(json.dumps(RECIPE))
    start_run(run_dir, RECIPE, follow=False)
    digests = {"corpus_digest": "0" * 64, "triples_digest": "0" * 64}
    graph.run(graph.Inputs(run_dir=run_dir, graph={}, **digests))
    finish_run(run_dir, "FINISHED")
    assert list((run_dir / "graph").glob("extract-*.json"))
    [added] = (run_dir / "graph/added").iterdir()

    def altered() -> set[tuple[str, str]]:
        found = {(finding.kind, finding.thing) for finding in verify_run(run_dir).findings}
        return {(kind, thing) for kind, thing in found if "graph/" in thing}

    assert altered() == set()
    added.write_bytes(added.read_bytes() + b"\n")
    assert altered() == {("altered", f"graph/added/{added.name}")}
