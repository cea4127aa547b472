"""Graph-R1's hybrid retrieval: all hyperedges of the entities nearest to the query, and the nearest hyperedges.

The score of a hyperedge is the sum of 1/rank over its entities among the nearest, plus 1/rank of the hyperedge if it is
among the nearest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from platform_sdk.config.struct import Struct
from platform_sdk.records import Evidence
from platform_sdk.retrieval.method import Index, RetrievalMethod
from platform_sdk.retrieval.methods.hyperedge import HyperedgeMaterial, best, load_graph
from platform_sdk.retrieval.milvus import Hit
from platform_sdk.sampling.rollout import SearchRequest


class GraphR1Settings(Struct):
    """Numbers of entities and hyperedges retrieved by similarity."""

    entities: int = Field(5, ge=1)
    hyperedges: int = Field(5, ge=1)


@dataclass(frozen=True)
class GraphMaterial(HyperedgeMaterial):
    """A graph with searchable entities."""

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Return the texts of entities and hyperedges."""
        return {"entities": self.graph.entity_texts, **super().texts()}


class GraphR1(RetrievalMethod[GraphMaterial, GraphR1Settings]):
    """Search by similarity to entities and to hyperedges, fused by rank."""

    settings = GraphR1Settings

    def load(self, run_dir: Path, settings: GraphR1Settings) -> GraphMaterial:
        graph, titles = load_graph(run_dir)
        return GraphMaterial(graph.digest, graph, titles)

    def find(
        self, index: Index[GraphMaterial, GraphR1Settings], requests: Sequence[SearchRequest], queries: np.ndarray,
        k: int,
    ) -> list[list[Evidence]]:  # fmt: skip
        entities = index.vectors["entities"].nearest(queries, index.settings.entities)
        hyperedges = index.vectors["hyperedges"].nearest(queries, index.settings.hyperedges)
        return [self._ranked(index, *own, k) for own in zip(queries, entities, hyperedges, strict=True)]

    def _ranked(
        self, index: Index[GraphMaterial, GraphR1Settings], query: np.ndarray, entities: Sequence[Hit],
        hyperedges: Sequence[Hit], k: int,
    ) -> list[Evidence]:  # fmt: skip
        graph = index.material.graph
        reached = [graph.entity_edges.row(entity) for entity, _ in entities]
        nearest = np.array([row for row, _ in hyperedges], dtype=np.int64)
        rows, places = np.unique(np.concatenate([*reached, nearest]), return_inverse=True)
        by_entity = np.repeat([1 / rank for rank in range(1, len(reached) + 1)], [len(own) for own in reached])
        first = np.bincount(places[: len(by_entity)], by_entity, minlength=len(rows))
        by_hyperedge = [1 / rank for rank in range(1, len(nearest) + 1)]
        second = np.bincount(places[len(by_entity) :], by_hyperedge, minlength=len(rows))
        scores = first + second
        return [
            index.material.evidence(
                int(rows[place]), float(scores[place]),
                parts={"entity": float(first[place]), "hyperedge": float(second[place])},
            )
            for place in best(index, query, rows, scores, k)
        ]  # fmt: skip


METHOD = GraphR1()
