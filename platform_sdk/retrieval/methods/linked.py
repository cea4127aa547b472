"""Passages by similarity, words and shared names.

    fused(p)  cosine / deviation + lexical * BM25 + title * rarity of p's title, if the query mentions it
    rank(p)   personalised PageRank over passages that share names, started at the passages of highest fused score
    score(p)  fused(p) + spread * log(1 + 200 * rank(p))

The deviation is the standard deviation of cosines between the corpus's passages, which depends on the encoder. Names
are titles mentioned by passages, and capitalised words (see ``platform_sdk.retrieval.names``); no language model is
needed. The graph of a query has the passages that share a name with its best passages, so the cost of a search hardly
depends on the corpus. Each result gives the reasons for its score: ``entities`` are the names that brought its rank,
``query_entities`` the titles in the query.

All tables are ordered by passage id, so results do not depend on the order of the corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from platform_sdk.retrieval.methods.passages import PassageMaterial
from platform_sdk.retrieval.milvus import Vectors
from platform_sdk.retrieval.names import Names
from platform_sdk.retrieval.spread import Spread, best
from platform_sdk.sampling.rollout import SearchRequest

SCORE_DIGITS = 6
SAMPLE = 1024
"""Number of passages for estimating the deviation of cosines; all passages of a smaller corpus."""
RANK_SCALE = 200


class LinkedSettings(Struct):
    """Weights of the score and size of the graph; the defaults were chosen on training questions."""

    lexical: float = Field(0.3, ge=0, description="Weight of BM25.")
    title: float = Field(0.7, ge=0, description="Weight of the rarity of a title that the query mentions.")
    spread: float = Field(6.0, ge=0, description="Weight of the logarithm of the rank.")
    damping: float = Field(0.7, ge=0, lt=1, description="Probability that the walk goes on.")
    seeds: int = Field(10, ge=1, le=1000, description="Best passages, from which the walk starts.")
    candidates: int = Field(50, ge=1, le=1000, description="Passages found by similarity, and by words.")
    shared: int = Field(60, ge=2, description="Names in more passages than this link none.")


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
    def build(cls, passages: Sequence[Passage], shared: int) -> Links:
        """Return the tables of a corpus."""
        order = np.array(sorted(range(len(passages)), key=lambda row: passages[row].id), dtype=np.int64)
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        sorted_passages = [passages[row] for row in order]
        lexical = Lexical.build(titled_texts(sorted_passages))
        names = Names.build(sorted_passages, shared)
        weights = np.array([lexical.weight(form) for form in names.forms])
        return cls(order, places, lexical, names, names.weights.T.tocsr(), weights)


@dataclass(frozen=True)
class LinkedMaterial(PassageMaterial):
    """The passages of a corpus, with their words and names."""

    shared: int
    _deviation: list[float] = field(default_factory=list, compare=False)

    @cached_property
    def links(self) -> Links:
        """The tables, built on first use."""
        return Links.build(self.passages, self.shared)

    def warm(self) -> None:
        """Build the tables."""
        assert self.links is not None

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
        return LinkedMaterial(corpus.digest, corpus.passages, settings.shared)

    def find(
        self, index: Index[LinkedMaterial, LinkedSettings], requests: Sequence[SearchRequest], queries: np.ndarray,
        k: int,
    ) -> list[list[Evidence]]:  # fmt: skip
        links, settings = index.material.links, index.settings
        count = max(k, settings.candidates)
        near = index.vectors["passages"].nearest(queries, count)
        lexical = links.lexical.scores([request.query for request in requests])
        scorers = [
            QueryScorer(index, request.query, query, row)
            for request, query, row in zip(requests, queries, lexical, strict=True)
        ]
        candidates, seeds = [], []
        for scorer, hits in zip(scorers, near, strict=True):
            own = np.unique(np.concatenate([links.places[[row for row, _ in hits]], scorer.worded(count)]))
            parts = scorer.parts(own)
            scores = scorer.fused(parts)
            first = best(np.arange(len(own)), scores, settings.seeds)
            candidates.append((own, parts))
            seeds.append((own[first], scores[first]))
        spread = Spread.over(links.names.weights, links.members, seeds)
        ranks = spread.ranks(settings.damping)
        reasons = spread.brought(ranks)
        found = []
        for at, scorer in enumerate(scorers):
            part = slice(*np.searchsorted(spread.owners, (at, at + 1)))
            reached = best(np.arange(part.start, part.stop), ranks[part], max(k, 2 * settings.candidates))
            own, known = candidates[at]
            new = np.setdiff1d(spread.passages[reached], own, assume_unique=True)
            places = np.concatenate([own, new])
            parts = {name: np.concatenate([known[name], values]) for name, values in scorer.parts(new).items()}
            rows = part.start + np.searchsorted(spread.passages[part], places)
            inside = rows < part.stop
            inside[inside] = spread.passages[rows[inside]] == places[inside]
            rank = np.where(inside, ranks[np.minimum(rows, len(ranks) - 1)], 0.0)
            parts["rank"] = rank
            totals = np.round(scorer.fused(parts) + settings.spread * np.log1p(RANK_SCALE * rank), SCORE_DIGITS)
            found.append(
                [
                    scorer.evidence(
                        places[each], totals[each], {name: float(values[each]) for name, values in parts.items()},
                        spread.reasons(reasons, int(rows[each])) if inside[each] else [],
                    )
                    for each in _best_rows(places, totals, k)
                ]
            )  # fmt: skip
        return found


class QueryScorer:
    """The formulas, for one query.

    Args:
        lexical: the query's BM25 scores, a row with a column for each place.
    """

    def __init__(
        self, index: Index[LinkedMaterial, LinkedSettings], text: str, query: np.ndarray, lexical: sparse.csr_matrix
    ) -> None:
        self.settings, self.material, self.links = index.settings, index.material, index.material.links
        self.query, self.cache = query, index.vectors["passages"].cache
        self.deviation = index.material.deviation(index.vectors["passages"])
        self.worded_places, self.lexical = lexical.indices, np.zeros(len(self.links.order))
        self.lexical[lexical.indices] = np.round(lexical.data, SCORE_DIGITS)
        self.forms = self.links.names.titles.link(text)
        self.titles: dict[int, float] = {}
        for form in self.forms:
            for place in self.links.names.passages_of_form[form].tolist():
                self.titles[place] = max(self.titles.get(place, 0.0), float(self.links.title_weights[form]))

    def worded(self, count: int) -> np.ndarray:
        """Return the places of the ``count`` highest BM25 scores, and of the titles that the query mentions."""
        named = np.array(list(self.titles), dtype=np.int64)
        return np.concatenate([best(self.worded_places, self.lexical[self.worded_places], count), named])

    def parts(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """Return the components of each passage's fused score."""
        return {
            "similarity": self.cache.similarities(self.query, self.links.order[places]),
            "lexical": self.lexical[places],
            "title": np.array([self.titles.get(place, 0.0) for place in places.tolist()]),
        }

    def fused(self, parts: dict[str, np.ndarray]) -> np.ndarray:
        """Return the weighted sum of the parts."""
        total = (
            parts["similarity"] / self.deviation
            + self.settings.lexical * parts["lexical"]
            + self.settings.title * parts["title"]
        )
        return np.round(total, SCORE_DIGITS)

    def evidence(self, place: int, score: float, parts: dict[str, float], names: Sequence[int]) -> Evidence:
        """Return a passage as evidence, with the names that led to it and the titles that the query mentions."""
        passage = self.material.passages[self.links.order[place]]
        return Evidence(
            kind="passage", id=passage.id, title=passage.title, text=passage.text, score=float(score), parts={**parts},
            entities=tuple(self.links.names.labels[name] for name in names),
            query_entities=tuple(self.links.names.forms[form] for form in self.forms),
        )  # fmt: skip


def _best_rows(places: np.ndarray, scores: np.ndarray, count: int) -> list[int]:
    """Return the indices of the ``count`` highest scores, best first; ties by place."""
    order: list[int] = np.lexsort((places, -scores))[:count].tolist()
    return order


METHOD = Linked()
