"""Cards of a run's inputs: data, model and index."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from platform_sdk.evaluation.cards.markdown import card, cell, digest, number, table
from platform_sdk.files import read_object
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Passage, Question
from platform_sdk.run_dir import RunDir

SHOWN = 3
PARTS = {
    "train": "training questions",
    "eval": "evaluation questions",
    "passages": "passages",
    "triples": "triples",
}


def data_card(run_dir: Path) -> str:
    """Return the counts, digests and first records of a run's data.

    Raises:
        UserError: a file is missing, or is not valid.
    """
    files = RunDir(run_dir)
    made = read_object(files.corpus_digests)
    counts = made["counts"]
    rows = [[name, number(counts[part]), digest(made[part])] for part, name in PARTS.items() if counts.get(part)]
    questions = [
        [cell(question.text), cell(question.answers[0], 40)]
        for part in ("train", "eval")
        if counts.get(part)
        for question in islice(read_jsonl(files.questions(part), Question), SHOWN)
    ]
    passages = [
        [cell(passage.title, 40), cell(passage.text)]
        for passage in islice(read_jsonl(files.passages, Passage), SHOWN if counts.get("passages") else 0)
    ]
    left_out = f" {counts['skipped']:,} malformed records were left out." if counts.get("skipped") else ""
    return card(
        "Data",
        f"Records of the run, and the first of each kind.{left_out}",
        table(["records", "count", "digest"], rows),
        table(["first questions", "answer"], questions),
        table(["passage", "text"], passages),
    )


def model_card_text(name: str, model: Path, weights: str, parents: Mapping[str, str] | None = None) -> str:
    """Return the size, digest and parents of a model.

    Args:
        name: The model's name: as the recipe gives it, or the phase that trained it.
        model: The model's folder; the parameters are counted in its safetensors files.
        weights: Digest of the weights.
        parents: Digests of the model's inputs, by name.
    """
    rows = [["parameters", _millions(_parameters(model))], ["weights", digest(weights)]]
    rows += [[f"from {cell(parent.replace('_', ' '))}", digest(value)] for parent, value in (parents or {}).items()]
    made = "Trained in this run." if parents else "The model that the run starts from."
    return card(f"Model: {name}", made, table(["property", "value"], rows))


def _parameters(model: Path) -> int:
    """Count the parameters in the safetensors files of a folder, for a pair the parameters of both models."""
    total = 0
    for path in sorted(model.rglob("*.safetensors")):
        with path.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        total += sum(math.prod(tensor["shape"]) for key, tensor in header.items() if key != "__metadata__")
    return total


def _millions(count: int) -> str:
    if not count:
        return "–"
    return f"{count / 1e9:.2f} billion" if count >= 1e9 else f"{count / 1e6:.2f} million"


def collection_card(index: Mapping[str, Any]) -> str:
    """Return the method, size and digests of an index.

    Args:
        index: The collection's metadata from the step ``index``.
    """
    rows = [
        ["retrieval method", cell(str(index["method"]))],
        ["collection", cell(str(index["collection"]))],
        ["rows", number(index["rows"])],
        ["added by this run", number(index["added"])],
        ["indexed records", digest(index["corpus_digest"])],
        ["encoder", digest(index["encoder_digest"])],
    ]
    return card("Index", "The collection that the agent searches.", table(["property", "value"], rows))


def graph_card(counts: Mapping[str, int], graph: str) -> str:
    """Return the size and digest of a hypergraph."""
    rows = [[name, number(count)] for name, count in counts.items()] + [["graph", digest(graph)]]
    return card("Graph", "The knowledge hypergraph of the corpus.", table(["property", "value"], rows))
