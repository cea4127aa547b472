"""A retrieval method of a user's own, in one file: the facts of the entities that are nearest to the query.

Two collections, tables of its own, settings, and evidence with parts, entities and source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field

from platform_sdk.data.dataset import read_triples
from platform_sdk.records import Evidence, Source, Triple
from platform_sdk.retrieval.method import Index, Material, RetrievalMethod
from platform_sdk.sampling.rollout import SearchRequest


class Settings(BaseModel):
    entities: int = Field(2, ge=1)


@dataclass(frozen=True)
class Graph(Material):
    entities: tuple[str, ...]
    facts: tuple[Triple, ...]

    def texts(self) -> Mapping[str, Sequence[str]]:
        return {"entities": self.entities, "facts": [fact.text for fact in self.facts]}


class Neighbours(RetrievalMethod[Graph, Settings]):
    settings = Settings

    def load(self, run_dir: Path, settings: Settings) -> Graph:
        store = read_triples(run_dir)
        return Graph(store.digest, tuple(dict.fromkeys(fact.head for fact in store.triples)), tuple(store.triples))

    def find(
        self, index: Index[Graph, Settings], requests: Sequence[SearchRequest], queries: np.ndarray, k: int
    ) -> list[list[Evidence]]:
        graph = index.material
        near = [dict(hits) for hits in index.vectors["entities"].nearest(queries, index.settings.entities)]
        names = [{graph.entities[row]: score for row, score in own.items()} for own in near]
        rows = [[row for row, fact in enumerate(graph.facts) if fact.head in own] for own in names]
        return [
            [
                Evidence(
                    kind="hyperedge", id=f"f{row}", text=graph.facts[row].text, score=score,
                    parts={"fact": score, "entity": own[graph.facts[row].head]},
                    entities=(graph.facts[row].head, graph.facts[row].tail), source=Source(passage=f"p{row}", start=0),
                )
                for row, score in hits
            ]
            for own, hits in zip(names, index.vectors["facts"].nearest_among(queries, rows, k), strict=True)
        ]  # fmt: skip


METHOD = Neighbours()
