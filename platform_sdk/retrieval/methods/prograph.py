"""ProGraph-R1's structure-aware retrieval: hyperedges of the query's entities and around them.

With V_q the entities of the query and E_q the hyperedges that contain one of them:

    s_v      cosine of v's vector and the mean vector of V_q, or the query's vector if V_q is empty
    S(v, e)  s_v normalised within e
    I(v)     log(1 + |hyperedges of E_q that contain v| / |hyperedges that contain v|)
    R(e)     sum of S(v, e) * I(v) over the entities v of e

The k hyperedges of highest R are returned; ties by similarity of query and hyperedge, then by id. R is 0 unless e
shares an entity with E_q, so only hyperedges that do and can be among the k best are scored: S sums to at most 1, so
R(e) is at most the largest I of its entities, which is small for a hub outside V_q.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from platform_sdk.config.struct import Struct
from platform_sdk.graph.graph import Incidence
from platform_sdk.graph.linking import EntityLinker
from platform_sdk.records import Evidence
from platform_sdk.retrieval.csr import row_entries
from platform_sdk.retrieval.method import Index, RetrievalMethod
from platform_sdk.retrieval.methods.graph_r1 import GraphMaterial
from platform_sdk.retrieval.methods.hyperedge import SCORE_DIGITS, best, load_graph
from platform_sdk.sampling.rollout import SearchRequest

FIRST_REACH = 1024
"""Number of hyperedges scored first outside E_q; each further step doubles it."""


class PrographSettings(Struct):
    """Linking of entities and normalisation of similarities.

    The paper leaves the normalisation open. With ``sum``, negative similarities count as 0.
    """

    normalisation: Literal["softmax", "sum"] = "softmax"
    link_similarity: float | None = Field(
        0.6,
        ge=-1,
        le=1,
        description="If the query names no entity, link the nearest entities of at least this similarity; null: none.",
    )
    link_maximum: int = Field(3, ge=1, description="Maximum number of entities linked by similarity.")


@dataclass(frozen=True)
class PrographMaterial(GraphMaterial):
    """A graph and a linker of queries to its entities."""

    linker: EntityLinker


@dataclass(frozen=True)
class Scores:
    """Scores of hyperedges, and of each of their entities. ``edges`` has the index of each entity's hyperedge."""

    edges: np.ndarray
    entities: np.ndarray
    similarity: np.ndarray  # s
    share: np.ndarray  # S
    informativeness: np.ndarray  # I
    total: np.ndarray  # R, one for each hyperedge


@dataclass(frozen=True)
class Scorer:
    """The formulas, for one query.

    Args:
        similarities: Returns s of entities.
    """

    edge_entities: Incidence
    entity_edges: Incidence
    query_entities: np.ndarray
    similarities: Callable[[np.ndarray], np.ndarray]
    normalisation: Literal["softmax", "sum"]

    @cached_property
    def query_edges(self) -> np.ndarray:
        """E_q, ascending."""
        return np.unique(_rows(self.entity_edges, self.query_entities)[0])

    @cached_property
    def _informative(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the entities of E_q, ascending, and their I; it is 0 for all others."""
        entities, counts = np.unique(_rows(self.edge_entities, self.query_edges)[0], return_counts=True)
        return entities, np.log1p(counts / _lengths(self.entity_edges, entities))

    def informativeness(self, entities: np.ndarray) -> np.ndarray:
        """Return I of ``entities``."""
        known, values = self._informative
        if not len(known):
            return np.zeros(len(entities))
        places = np.minimum(np.searchsorted(known, entities), len(known) - 1)
        return np.where(known[places] == entities, values[places], 0.0)

    def score(self, rows: np.ndarray) -> Scores:
        """Return R of hyperedges, and its components."""
        entities, edges = _rows(self.edge_entities, rows)
        distinct, places = np.unique(entities, return_inverse=True)
        similarity = self.similarities(distinct)[places]
        weights = np.exp(similarity) if self.normalisation == "softmax" else np.maximum(similarity, 0)
        totals = np.bincount(edges, weights, minlength=len(rows))[edges]
        share = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
        informativeness = self.informativeness(entities)
        total = np.bincount(edges, share * informativeness, minlength=len(rows))
        return Scores(edges, entities, similarity, share, informativeness, np.round(total, SCORE_DIGITS))

    def candidates(self, k: int, reach: int = FIRST_REACH) -> tuple[np.ndarray, np.ndarray]:
        """Return hyperedges of positive R, including the ``k`` best, and their R."""
        entities, values = self._informative
        shared = values < np.log1p(1.0)  # the others are in no hyperedge outside E_q
        entities, values = entities[shared], values[shared]
        order = np.argsort(-values, kind="stable")
        entities, values = entities[order], values[order]
        reached = np.cumsum(_lengths(self.entity_edges, entities))
        rows = self.query_edges
        totals = self.score(rows).total
        start = 0
        while start < len(entities):
            floor = np.partition(totals, -k)[-k] if len(totals) >= k else 0.0
            able = np.searchsorted(-values, -(floor - 10.0**-SCORE_DIGITS), side="right")
            end = min(int(able), max(start + 1, int(np.searchsorted(reached, reach))))
            if end <= start:
                break
            new = np.setdiff1d(_rows(self.entity_edges, entities[start:end])[0], rows)
            rows, totals = np.concatenate([rows, new]), np.concatenate([totals, self.score(new).total])
            start, reach = end, 2 * reach
        return rows[totals > 0], totals[totals > 0]


def _lengths(incidence: Incidence, rows: np.ndarray) -> np.ndarray:
    return np.asarray(incidence.indptr[rows + 1] - incidence.indptr[rows])


def _rows(incidence: Incidence, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of ``rows``, one row after the other, and for each the place of its row in ``rows``."""
    entries, places = row_entries(incidence.indptr, rows)
    return incidence.indices[entries], places


class Prograph(RetrievalMethod[PrographMaterial, PrographSettings]):
    """Search by similarity and structure around the entities of the query."""

    settings = PrographSettings

    def load(self, run_dir: Path, settings: PrographSettings) -> PrographMaterial:
        graph, titles = load_graph(run_dir)
        names = zip(graph.entity_names, graph.entity_aliases, strict=True)
        return PrographMaterial(graph.digest, graph, titles, EntityLinker([name, *aliases] for name, aliases in names))

    def find(
        self, index: Index[PrographMaterial, PrographSettings], requests: Sequence[SearchRequest], queries: np.ndarray,
        k: int,
    ) -> list[list[Evidence]]:  # fmt: skip
        linked = _link(index, requests, queries)
        ranked = [_ranked(index, entities, query, k) for entities, query in zip(linked, queries, strict=True)]
        short = [place for place, (_, rows) in enumerate(ranked) if len(rows) < k]
        nearest = index.vectors["hyperedges"].nearest(queries[short], k)  # all others tie at 0
        for place, hits in zip(short, nearest, strict=True):
            scorer, rows = ranked[place]
            others = np.array([row for row, _ in hits], dtype=np.int64)
            others = others[~np.isin(others, rows)][: k - len(rows)]
            ranked[place] = scorer, np.concatenate([rows, others])
        return [_evidence(index.material, scorer, rows) for scorer, rows in ranked]


def _link(
    index: Index[PrographMaterial, PrographSettings], requests: Sequence[SearchRequest], queries: np.ndarray
) -> list[np.ndarray]:
    """Return V_q of each request: the entities that it names, else the nearest ones above the similarity limit."""
    linked = [index.material.linker.link(request.query) for request in requests]
    settings = index.settings
    if settings.link_similarity is not None and (unnamed := [at for at, own in enumerate(linked) if not own]):
        nearest = index.vectors["entities"].nearest(queries[unnamed], settings.link_maximum)
        for at, hits in zip(unnamed, nearest, strict=True):
            linked[at] = [row for row, similarity in hits if similarity >= settings.link_similarity]
    return [np.array(own, dtype=np.int64) for own in linked]


def _ranked(
    index: Index[PrographMaterial, PrographSettings], linked: np.ndarray, query: np.ndarray, k: int
) -> tuple[Scorer, np.ndarray]:
    """Return the at most ``k`` best hyperedges of positive R, best first, with their scorer."""
    graph, cache = index.material.graph, index.vectors["entities"].cache
    centre = query
    if len(linked):
        mean = cache.vectors(linked).astype(np.float64).mean(axis=0)
        length = np.linalg.norm(mean)
        centre = mean / length if length > 0 else mean  # if the vectors cancel out, all similarities are 0
    scorer = Scorer(
        graph.edge_entities, graph.entity_edges, linked, lambda entities: cache.similarities(centre, entities),
        index.settings.normalisation,
    )  # fmt: skip
    rows, totals = scorer.candidates(k)
    return scorer, rows[best(index, query, rows, totals, k)]


def _evidence(material: PrographMaterial, scorer: Scorer, rows: np.ndarray) -> list[Evidence]:
    ids = material.graph.entity_ids
    found = scorer.score(rows)
    parts: list[dict[str, dict[str, float]]] = [{} for _ in rows]
    columns = (found.edges, found.entities, found.similarity, found.share, found.informativeness)
    for edge, entity, similarity, share, value in zip(*(column.tolist() for column in columns), strict=True):
        parts[edge][ids[entity]] = {"s": similarity, "S": share, "I": value}
    query_entities = tuple(ids[entity] for entity in scorer.query_entities.tolist())
    return [
        material.evidence(int(row), float(score), parts={"entities": own}, query_entities=query_entities)
        for row, score, own in zip(rows, found.total, parts, strict=True)
    ]


METHOD = Prograph()
