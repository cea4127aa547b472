"""Hyperedges with the texts nearest to the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from platform_sdk.config.errors import UserError
from platform_sdk.data.dataset import PASSAGES, read_corpus
from platform_sdk.graph.graph import MANIFEST, Graph
from platform_sdk.graph.sources import Sources, graph_folder
from platform_sdk.records import Evidence
from platform_sdk.retrieval.method import Index, Material, NoSettings, RetrievalMethod
from platform_sdk.sampling.rollout import SearchRequest

SCORE_DIGITS = 9  # digits of a compared score, so that sums equal up to float noise tie


@dataclass(frozen=True)
class HyperedgeMaterial(Material):
    """The hyperedges of a graph, and the titles of their source passages by id."""

    graph: Graph
    titles: Mapping[str, str]

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Return the text of each hyperedge."""
        return {"hyperedges": self.graph.hyperedge_texts}

    def evidence(self, row: int, score: float, **found: Any) -> Evidence:
        """Return the hyperedge in ``row`` as evidence, titled like its passage if the corpus has the passage."""
        graph = self.graph
        source = graph.hyperedge_sources[row]
        joined = [int(entity) for entity in graph.edge_entities.row(row)]
        entities = tuple(graph.entity_ids[entity] for entity in joined)
        names = tuple(graph.entity_names[entity] for entity in joined)
        return Evidence(
            kind="hyperedge", id=graph.hyperedge_ids[row], title=self.titles.get(source.passage, ""),
            text=graph.hyperedge_texts[row], score=score, entities=entities,
            entity_names=names, source=source, **found,
        )  # fmt: skip


def load_graph(run_dir: Path) -> tuple[Graph, dict[str, str]]:
    """Return a run's graph, and the titles by id of the corpus's passages and of passages added to the graph.

    Raises:
        UserError: the graph is missing or damaged.
    """
    folder = graph_folder(run_dir)
    if not (folder / MANIFEST).exists():
        build = f"hopforge graph build --recipe RECIPE --workdir {run_dir}"
        raise UserError(f"{folder}: contains no graph; build it first: {build}")
    passages = read_corpus(run_dir).passages if (run_dir / PASSAGES).exists() else ()
    titles = {passage.id: passage.title for passage in (*passages, *Sources(run_dir).added_passages())}
    return Graph.open(folder), titles


def best(index: Index[Any, Any], query: np.ndarray, rows: np.ndarray, scores: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the ``k`` highest scores, best first; ties by similarity to the query, then by id."""
    scores = np.round(scores, SCORE_DIGITS)
    floor = np.partition(scores, -k)[-k] if len(scores) > k else -np.inf
    places = np.flatnonzero(scores >= floor)
    similarities = index.vectors["hyperedges"].cache.similarities(query, rows[places])
    return places[np.lexsort((rows[places], -similarities, -scores[places]))[:k]]


class Hyperedges(RetrievalMethod[HyperedgeMaterial, NoSettings]):
    """Search hyperedges by similarity to the query."""

    settings = NoSettings

    def load(self, run_dir: Path, settings: NoSettings) -> HyperedgeMaterial:
        graph, titles = load_graph(run_dir)
        return HyperedgeMaterial(graph.digest, graph, titles)

    def find(
        self,
        index: Index[HyperedgeMaterial, NoSettings],
        requests: Sequence[SearchRequest],
        queries: np.ndarray,
        k: int,
    ) -> list[list[Evidence]]:
        hits = index.vectors["hyperedges"].nearest(queries, k)
        return [[index.material.evidence(*hit) for hit in own] for own in hits]


METHOD = Hyperedges()
