"""One changed byte of a dataset's file changes the digests of what follows from it, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.lineage.graph import build_graph
from platform_sdk.steps import corpus, index
from platform_sdk.tracking import manifest, seals, start_run

RECIPE: dict[str, Any] = {"pipeline": "own", "name": "own", "parameters": {"seed": 0}}
DATASET = {"format": "jsonl", "train": "train.jsonl", "eval": "eval.jsonl", "corpus": "corpus.jsonl"}
QUESTION = {"question": "Who wrote The Blue Harbour?", "answers": ["Anna Vey"]}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for part in ("train", "eval"):
        (folder / f"{part}.jsonl").write_text(json.dumps({"id": part, **QUESTION}) + "\n")
    passage = {"id": "p1", "title": "The Blue Harbour", "text": "A novel by Anna Vey."}
    (folder / "corpus.jsonl").write_text(json.dumps(passage) + "\n")
    return folder


def recorded(run_dir: Path, data: Path) -> list[manifest.Entry]:
    """Run the steps corpus and index; return the manifest."""
    start_run(run_dir, RECIPE, follow=False)
    made = corpus.run(corpus.Inputs(run_dir=run_dir, dataset=DATASET, data_dir=str(data))).outputs
    index.run(
        index.Inputs(
            run_dir=run_dir,
            environment="passages",
            retrieval={"method": "lexical"},
            corpus_digest=made.corpus_digest,
            triples_digest=made.triples_digest,
        )
    )
    return manifest.read(run_dir)


def digests(entries: list[manifest.Entry], data: Path) -> dict[str, str]:
    """Return the digests of the steps: inputs, results and files."""
    found: dict[str, str] = {}
    for step, entry in seals.last_entries(entries).items():
        found |= {f"{step}: reads {one.name.removeprefix(f'{data}/')}": one.digest for one in entry.inputs}
        found |= {f"{step}: {name}": digest for name, digest in entry.digests.items()}
        found |= {f"{step}: wrote {one.path}": one.sha256 for one in entry.outputs}
        found[f"{step}: settings"] = entry.settings
    return found


PASSAGES = {
    "corpus: reads corpus.jsonl", "corpus: passages", "corpus: wrote corpus/passages.jsonl",
    "corpus: wrote corpus/digests.json", "index: reads passages", "index: searched",
}  # fmt: skip
"""The lexical method has no collection, whose name would be in the digest ``index``."""


@pytest.mark.parametrize(
    ("file", "old", "new", "dependent"),
    [
        (
            "eval.jsonl", "Vey", "Vex",
            {
                "corpus: reads eval.jsonl", "corpus: eval", "corpus: wrote corpus/questions.eval.jsonl",
                "corpus: wrote corpus/digests.json",
            },
        ),
        ("corpus.jsonl", "novel", "hovel", PASSAGES),
    ],
)  # fmt: skip
def test_changed_byte_of_a_file_changes_exactly_the_dependent_digests(
    data: Path, tmp_path: Path, file: str, old: str, new: str, dependent: set[str]
) -> None:
    first = recorded(tmp_path / "first", data)
    text = (data / file).read_text()
    assert text.count(old) == 1
    (data / file).write_text(text.replace(old, new))
    second = recorded(tmp_path / "second", data)
    before, after = digests(first, data), digests(second, data)
    assert before.keys() == after.keys()
    assert {name for name, digest in before.items() if after[name] != digest} == dependent
    graph = build_graph({"first": first, "second": second})
    versions = [node for node in graph.nodes.values() if str(data / file) in node.names]
    assert len(versions) == 2, "lineage shows both versions of the file"
