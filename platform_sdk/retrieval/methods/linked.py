"""Passages by similarity, words and shared names.

    first(p)  cosine / deviation + lexical * BM25 + title * rarity of p's title, if the query mentions it
    start(p)  probability in proportion to the square of first(p), above the lowest of the best passages
    rank(p)   personalised PageRank of the walk over names that starts by ``start``
    score(p)  cosine / deviation + spread * log(1 + 200 * rank(p)) + missing * BM25 of the words that the three best
              passages lack - repeated * mean cosine with the best passages / deviation
              + nearest / r, if p is the r-th most similar passage, r is at most 10, and p is a candidate by similarity

The deviation is the standard deviation of cosines between the corpus's passages, which depends on the encoder. Names
are titles mentioned by passages, and capitalised words (see ``platform_sdk.retrieval.names``); no language model is
needed. The terms ``missing`` and ``repeated`` favour passages that add to the best ones: another hop of the question.
``nearest`` keeps the passages that answer a question of one hop. A query without a name of the corpus
(``Names.named_in``) is searched by similarity only.

Only candidates are scored: the most similar passages, those of the highest BM25, those with a title in the query and
those of the highest rank. Their number does not depend on the number of results, so with an exact index neither does
their order. If more results are requested, the other passages follow by similarity.

The graph of a query has the passages that share a name with its best passages, so the cost of a search hardly depends
on the corpus. Each result gives the reasons for its score: ``entities`` are the names that brought its rank,
``query_entities`` the titles in the query. All tables are ordered by passage id, so results do not depend on the order
of the corpus.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from pydantic import Field
from scipy import sparse

from platform_sdk.config.struct import Struct
from platform_sdk.data.dataset import read_corpus
from platform_sdk.records import Evidence, Passage
from platform_sdk.retrieval.lexical import Lexical, titled_texts
from platform_sdk.retrieval.method import Index, RetrievalMethod
from platform_sdk.retrieval.methods.hyperedge import load_graph
from platform_sdk.retrieval.methods.passages import PassageMaterial
from platform_sdk.retrieval.milvus import Hit, Vectors
from platform_sdk.retrieval.names import Names
from platform_sdk.retrieval.spread import Spread, best, start_chances
from platform_sdk.sampling.rollout import SearchRequest

SCORE_DIGITS = 6
SAMPLE = 1024
"""Number of passages for estimating the deviation of cosines; all passages of a smaller corpus."""
RANK_SCALE = 200
COVERING = 3
"""Number of best passages whose words count as covered."""
NEAREST = 10
"""Number of most similar passages with a bonus."""


class LinkedSettings(Struct):
    """Weights of the score and size of the graph; the defaults were chosen on training questions."""

    lexical: float = Field(0.3, ge=0, le=1e6, description="Weight of BM25 in the choice of the walk's start passages.")
    title: float = Field(0.7, ge=0, le=1e6, description="Weight in that choice of the rarity of titles in the query.")
    spread: float = Field(3.5, ge=0, le=1e6, description="Weight of the logarithm of the rank.")
    missing: float = Field(0.4, ge=0, le=1e6, description="Weight of BM25 of query words that the best passages lack.")
    repeated: float = Field(0.6, ge=0, le=1e6, description="Weight of the penalty for similarity to the best passages.")
    nearest: float = Field(5.0, ge=0, le=1e6, description="Bonus of the most similar passage; of rank r: 1/r of it.")
    damping: float = Field(0.7, ge=0, le=0.99, description="Probability that the walk continues.")
    seeds: int = Field(10, ge=1, le=1000, description="Number of passages from which the walk starts.")
    candidates: int = Field(30, ge=1, le=1000, description="Number of candidates by similarity, and by BM25.")
    shared: int = Field(60, ge=2, description="Names in more passages than this create no links.")
    graph: bool = Field(False, description="Also link passages by the entities of the run's graph.")


@dataclass(frozen=True)
class Links:
    """Tables of a corpus: ``order[place]`` is the row of the passage at a place in the order of ids."""

    order: np.ndarray
    places: np.ndarray
    lexical: Lexical
    names: Names
    members: sparse.csr_matrix
    """Passages of each name."""
    title_weights: np.ndarray
    """Rarity of each title's words, by the number that ``names.titles`` gives the title."""

    @classmethod
    def build(cls, passages: Sequence[Passage], shared: int, entities: Mapping[str, Sequence[str]]) -> Links:
        """Return the tables of a corpus; ``entities`` are further names by passage id."""
        order = np.array(sorted(range(len(passages)), key=lambda row: passages[row].id), dtype=np.int64)
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        sorted_passages = [passages[row] for row in order]
        lexical = Lexical.build(titled_texts(sorted_passages))
        names = Names.build(sorted_passages, shared, entities)
        weights = np.array([lexical.weight(form) for form in names.forms])
        return cls(order, places, lexical, names, names.arriving.T.tocsr(), weights)


@dataclass(frozen=True)
class LinkedMaterial(PassageMaterial):
    """The passages of a corpus, with their words and names.

    ``entities`` are the names of a graph's entities by passage id; the graph's digest is part of ``digest``.
    """

    shared: int
    entities: Mapping[str, Sequence[str]] = field(default_factory=dict)
    _deviation: list[float] = field(default_factory=list, compare=False)

    @cached_property
    def links(self) -> Links:
        """The tables, built on first use."""
        return Links.build(self.passages, self.shared, self.entities)

    def warm(self) -> None:
        """Build the tables."""
        assert self.links.lexical.by_text is not None

    def deviation(self, vectors: Vectors) -> float:
        """Return the standard deviation of the cosines between passages, estimated once; 1 if all are equal."""
        if not self._deviation:
            order = self.links.order
            drawn = order[np.linspace(0, len(order) - 1, min(len(order), SAMPLE)).astype(np.int64)]
            sample = vectors.cache.vectors(drawn).astype(np.float64)
            cosines = sample @ sample.T
            found = float(cosines[~np.eye(len(sample), dtype=bool)].std()) if len(sample) > 1 else 0.0
            self._deviation.append(found if found > 10.0**-SCORE_DIGITS else 1.0)
        return self._deviation[0]


class Linked(RetrievalMethod[LinkedMaterial, LinkedSettings]):
    """Search by similarity and words, and spread the scores over passages that share names."""

    settings = LinkedSettings

    def load(self, run_dir: Path, settings: LinkedSettings) -> LinkedMaterial:
        corpus = read_corpus(run_dir)
        if not settings.graph:
            return LinkedMaterial(corpus.digest, corpus.passages, settings.shared)
        graph, _ = load_graph(run_dir)
        entities: dict[str, list[str]] = {}
        for row, source in enumerate(graph.hyperedge_sources):
            joined = graph.edge_entities.row(row)
            entities.setdefault(source.passage, []).extend(graph.entity_names[int(entity)] for entity in joined)
        digest = hashlib.sha256(f"{corpus.digest} {graph.digest}".encode()).hexdigest()
        return LinkedMaterial(digest, corpus.passages, settings.shared, entities)

    def find(
        self, index: Index[LinkedMaterial, LinkedSettings], requests: Sequence[SearchRequest], queries: np.ndarray,
        k: int,
    ) -> list[list[Evidence]]:  # fmt: skip
        links = index.material.links
        near = index.vectors["passages"].nearest(queries, max(k, index.settings.candidates), links.places)
        lexical = links.lexical.scores([request.query for request in requests])
        rows = [slice(*lexical.indptr[at : at + 2]) for at in range(len(requests))]
        found: list[list[Evidence]] = [[] for _ in requests]
        scorers: dict[int, QueryScorer] = {}
        for at, (request, query, hits) in enumerate(zip(requests, queries, near, strict=True)):
            if links.names.named_in(request.query):
                worded = (lexical.indices[rows[at]], lexical.data[rows[at]])
                scorers[at] = QueryScorer(index, request.query, query, worded, hits)
            else:
                found[at] = _plain(index, hits[:k])
        if scorers:
            seeds = [(scorer.best, scorer.start) for scorer in scorers.values()]
            spread = Spread.over(links.names.leaving, links.names.arriving, links.members, seeds)
            ranks = spread.ranks(index.settings.damping)
            reasons = spread.brought(ranks)
            for owner, (at, scorer) in enumerate(scorers.items()):
                found[at] = scorer.find(spread, ranks, reasons, owner, k)
        return found


class QueryScorer:
    """The formulas, for one query.

    Args:
        worded: places with words of the query, and their BM25 scores.
        hits: the nearest passages, at least as many as candidates and as results.

    Attributes:
        near, nearest: places of ``hits``, and of the first ones.
        best: places of the best passages by the first score.
        start: probability of a walk's start at each of them.
    """

    def __init__(
        self, index: Index[LinkedMaterial, LinkedSettings], text: str, query: np.ndarray,
        worded: tuple[np.ndarray, np.ndarray], hits: Sequence[Hit],
    ) -> None:  # fmt: skip
        self.text, self.query, self.settings = text, query, index.settings
        self.material, self.links = index.material, index.material.links
        self.cache = index.vectors["passages"].cache
        self.deviation = index.material.deviation(index.vectors["passages"])
        self.forms = self.links.names.titles.link(text)
        titles: dict[int, float] = {}
        for form in self.forms:
            for place in self.links.names.passages_of_form[form].tolist():
                titles[place] = max(titles.get(place, 0.0), float(self.links.title_weights[form]))
        places, scores = worded[0], np.round(worded[1], SCORE_DIGITS)
        self.near = self.links.places[[row for row, _ in hits]]
        near, highest = self.near[: self.settings.candidates], best(places, scores, self.settings.candidates)
        self.nearest = near[:NEAREST]
        self.candidates = np.unique(np.concatenate([near, highest, np.array(list(titles), dtype=np.int64)]))
        words = np.zeros(len(self.links.order))
        words[places] = scores
        first = np.round(
            self._similarity(self.query, self.candidates)
            + self.settings.lexical * words[self.candidates]
            + self.settings.title * np.array([titles.get(place, 0.0) for place in self.candidates.tolist()]),
            SCORE_DIGITS,
        )
        chosen = best(np.arange(len(first)), first, self.settings.seeds)
        self.best, self.start = self.candidates[chosen], start_chances(first[chosen])

    def find(self, spread: Spread, ranks: np.ndarray, reasons: np.ndarray, owner: int, k: int) -> list[Evidence]:
        """Return the ``k`` candidates of highest score; if there are fewer, also the most similar other passages.

        Args:
            ranks: the rank of each row of ``spread``.
            reasons: the ranks that its names brought, see ``Spread.brought``.
            owner: the number of this query in ``spread``.
        """
        part = slice(*np.searchsorted(spread.owners, (owner, owner + 1)))
        reached = best(np.arange(part.start, part.stop), ranks[part], 2 * self.settings.candidates)
        scored = np.union1d(self.candidates, spread.passages[reached])
        further = self.near[~np.isin(self.near, scored)][: max(0, k - len(scored))]
        places = np.union1d(scored, further)
        rows = part.start + np.searchsorted(spread.passages[part], places)
        inside = rows < part.stop
        inside[inside] = spread.passages[rows[inside]] == places[inside]
        rank = np.zeros(len(places))
        rank[inside] = ranks[rows[inside]]
        parts = self.parts(places, rank)
        totals = np.round(sum(parts.values()), SCORE_DIGITS)
        among = np.searchsorted(places, scored)
        chosen = np.concatenate([best(among, totals[among], k), np.searchsorted(places, further)])
        return [
            self._evidence(
                int(places[at]), float(totals[at]), {name: float(values[at]) for name, values in parts.items()},
                spread.reasons(reasons, int(rows[at])) if inside[at] else [],
            )
            for at in chosen.tolist()
        ]  # fmt: skip

    def parts(self, places: np.ndarray, rank: np.ndarray) -> dict[str, np.ndarray]:
        """Return the parts of each passage's score, by name; their sum is the score."""
        vectors = self.cache.vectors(self.links.order[self.best]).astype(np.float64)
        centre = np.einsum("i,ij->j", self.start, vectors)
        missing = self.links.lexical.missing(self.text, places, self.best[:COVERING])
        nearest = np.zeros(len(places))
        nearest[np.searchsorted(places, self.nearest)] = self.settings.nearest / np.arange(1, len(self.nearest) + 1)
        return {
            "similarity": self._similarity(self.query, places),
            "links": np.round(self.settings.spread * np.log1p(RANK_SCALE * rank), SCORE_DIGITS),
            "missing words": np.round(self.settings.missing * missing, SCORE_DIGITS),
            "repeated": -self.settings.repeated * self._similarity(centre, places),
            "nearest": np.round(nearest, SCORE_DIGITS),
        }

    def _similarity(self, vector: np.ndarray, places: np.ndarray) -> np.ndarray:
        return self.cache.similarities(vector, self.links.order[places]) / self.deviation

    def _evidence(self, place: int, score: float, parts: dict[str, float], names: Sequence[int]) -> Evidence:
        """Return a passage as evidence, with the names that led to it and the titles that the query mentions."""
        return self.material.evidence(
            int(self.links.order[place]), score, parts=parts,
            entities=tuple(self.links.names.labels[name] for name in names),
            query_entities=tuple(self.links.names.forms[form] for form in self.forms),
        )  # fmt: skip


def _plain(index: Index[LinkedMaterial, LinkedSettings], hits: Sequence[Hit]) -> list[Evidence]:
    """Return the nearest passages, with scores of the same scale as linked ones."""
    deviation = index.material.deviation(index.vectors["passages"])
    return [index.material.evidence(row, round(cosine / deviation, SCORE_DIGITS)) for row, cosine in hits]


METHOD = Linked()
