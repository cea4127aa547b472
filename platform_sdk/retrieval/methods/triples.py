"""Triples of one entity, by similarity to the query.

An entity is looked up by its id, which distinguishes entities of one name, or else by its name. If the graph lacks the
id, the name is looked up among the heads without an id, since a head with another id is another entity. An entity
without triples gives no evidence; this is not an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from platform_sdk.config.retrieval import SCOPES
from platform_sdk.data.dataset import read_triples
from platform_sdk.records import Evidence, Triple
from platform_sdk.retrieval.method import Index, Material, NoSettings, RetrievalMethod
from platform_sdk.sampling.rollout import SearchRequest


@dataclass(frozen=True)
class TripleMaterial(Material):
    """The triples of a graph, and the rows of each head, by its id and by its name."""

    triples: Sequence[Triple]
    by_head: Mapping[str, Sequence[int]]

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Return the text of each triple."""
        return {"triples": [triple.text for triple in self.triples]}

    def rows_of(self, scope: Mapping[str, str]) -> Sequence[int]:
        """Return the rows of the requested entity, by id or else by name among the heads without an id."""
        named = self.by_head.get(scope.get("head_name", ""), ())
        return self.by_head.get(scope["head"]) or [row for row in named if not self.triples[row].head_id]

    def evidence(self, row: int, score: float) -> Evidence:
        """Return the triple in ``row`` as evidence, titled with its tail, the next candidate entity."""
        found = self.triples[row]
        names = (found.head, found.tail)
        entities = (found.head_id or found.head, found.tail_id or found.tail)
        return Evidence(
            kind="triple",
            id=str(row),
            title=found.tail,
            text=found.text,
            score=score,
            entities=entities,
            entity_names=() if entities == names else names,
        )


class Triples(RetrievalMethod[TripleMaterial, NoSettings]):
    """Search the triples whose head is the entity that the request visits."""

    settings = NoSettings
    scope = SCOPES["triples"]

    def load(self, run_dir: Path, settings: NoSettings) -> TripleMaterial:
        store = read_triples(run_dir)
        by_head: defaultdict[str, list[int]] = defaultdict(list)
        for row, triple in enumerate(store.triples):
            for key in {triple.head_id, triple.head} - {""}:
                by_head[key].append(row)
        return TripleMaterial(store.digest, store.triples, dict(by_head))

    def find(
        self, index: Index[TripleMaterial, NoSettings], requests: Sequence[SearchRequest], queries: np.ndarray, k: int
    ) -> list[list[Evidence]]:
        rows = [index.material.rows_of(request.scope) for request in requests]
        hits = index.vectors["triples"].nearest_among(queries, rows, k)
        return [[index.material.evidence(*hit) for hit in own] for own in hits]


METHOD = Triples()
