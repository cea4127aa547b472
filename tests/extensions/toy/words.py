"""A retrieval method of the toy's own: the passages that share the most words with the query. No encoder, no index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from platform_sdk.data.dataset import read_corpus
from platform_sdk.records import Evidence, Passage, Source
from platform_sdk.retrieval.method import Index, Material, RetrievalMethod
from platform_sdk.sampling.rollout import SearchRequest


class WordSettings(BaseModel):
    """``title_weight``: how often a word of the title counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title_weight: int = Field(2, ge=1, le=10)


@dataclass(frozen=True)
class WordMaterial(Material):
    passages: Sequence[Passage]


class SharedWords(RetrievalMethod[WordMaterial, WordSettings]):
    """Search by the number of shared words."""

    settings = WordSettings

    def load(self, run_dir: Path, settings: WordSettings) -> WordMaterial:
        corpus = read_corpus(run_dir)
        return WordMaterial(corpus.digest, corpus.passages)

    def find(
        self, index: Index[WordMaterial, WordSettings], requests: Sequence[SearchRequest], queries: np.ndarray, k: int
    ) -> list[list[Evidence]]:
        found = []
        for request in requests:
            asked = words(request.query)
            scored = [self._evidence(passage, asked, index.settings) for passage in index.material.passages]
            found.append(sorted(scored, key=lambda item: (-item.score, item.id))[:k])
        return found

    def _evidence(self, passage: Passage, asked: set[str], settings: WordSettings) -> Evidence:
        parts = {
            "title": float(settings.title_weight * len(asked & words(passage.title))),
            "text": float(len(asked & words(passage.text))),
        }
        source = Source(passage=passage.id, start=0, end=len(passage.text))
        return Evidence(
            kind="passage", id=passage.id, title=passage.title, text=passage.text, score=sum(parts.values()),
            parts=parts, entities=(passage.title,), source=source,
        )  # fmt: skip


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


METHOD = SharedWords()
