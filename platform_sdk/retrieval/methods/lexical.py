"""Passages that share words with the query, by BM25. Needs no encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from platform_sdk.config.errors import UserError
from platform_sdk.data.dataset import PASSAGES, read_corpus
from platform_sdk.records import Evidence, Passage
from platform_sdk.retrieval.lexical import Lexical, titled_texts
from platform_sdk.retrieval.method import Index, Material, NoSettings, RetrievalMethod
from platform_sdk.retrieval.spread import best
from platform_sdk.sampling.rollout import SearchRequest

SCORE_DIGITS = 6


@dataclass(frozen=True)
class LexicalMaterial(Material):
    """The passages of a corpus in the order of their ids, which breaks ties."""

    passages: Sequence[Passage]

    @cached_property
    def lexical(self) -> Lexical:
        """BM25 weights, computed on first use."""
        return Lexical.build(titled_texts(self.passages))

    def warm(self) -> None:
        """Compute the weights."""
        assert self.lexical is not None


class LexicalSearch(RetrievalMethod[LexicalMaterial, NoSettings]):
    """Search by the words of the query. Passages without any of them are not returned."""

    settings = NoSettings

    def load(self, run_dir: Path, settings: NoSettings) -> LexicalMaterial:
        corpus = read_corpus(run_dir)
        if not corpus.passages:
            raise UserError(f"{run_dir / PASSAGES}: holds no passages to search; give dataset.corpus")
        return LexicalMaterial(corpus.digest, sorted(corpus.passages, key=lambda passage: passage.id))

    def find(
        self, index: Index[LexicalMaterial, NoSettings], requests: Sequence[SearchRequest], queries: np.ndarray, k: int
    ) -> list[list[Evidence]]:
        material = index.material
        found = []
        for row in material.lexical.scores([request.query for request in requests]):
            scores = np.round(row.toarray().ravel(), SCORE_DIGITS)
            rows = best(np.arange(len(scores)), scores, k, above=0.0)
            found.append([_evidence(material.passages[at], scores[at]) for at in rows])
        return found


def _evidence(passage: Passage, score: float) -> Evidence:
    return Evidence(kind="passage", id=passage.id, title=passage.title, text=passage.text, score=float(score))


METHOD = LexicalSearch()
