"""Nearest passages of the whole corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from platform_sdk.data.dataset import read_corpus
from platform_sdk.records import Evidence, Passage
from platform_sdk.retrieval.method import Index, Material, NoSettings, RetrievalMethod
from platform_sdk.rows import Rows
from platform_sdk.sampling.rollout import SearchRequest


@dataclass(frozen=True)
class _Texts(Rows[str]):
    """Title and text of each passage, joined on access."""

    passages: Sequence[Passage]

    def __len__(self) -> int:
        return len(self.passages)

    def row(self, number: int) -> str:
        passage = self.passages[number]
        return f"{passage.title}\n{passage.text}"


@dataclass(frozen=True)
class PassageMaterial(Material):
    """The passages of a corpus."""

    passages: Sequence[Passage]

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Return title and text of each passage."""
        return {"passages": _Texts(self.passages)}

    def evidence(self, row: int, score: float, **found: Any) -> Evidence:
        """Return the passage in ``row`` as evidence."""
        own = self.passages[row]
        return Evidence(kind="passage", id=own.id, title=own.title, text=own.text, score=score, **found)


class Passages(RetrievalMethod[PassageMaterial, NoSettings]):
    """Search by similarity to the query."""

    settings = NoSettings

    def load(self, run_dir: Path, settings: NoSettings) -> PassageMaterial:
        corpus = read_corpus(run_dir)
        return PassageMaterial(corpus.digest, corpus.passages)

    def find(
        self, index: Index[PassageMaterial, NoSettings], requests: Sequence[SearchRequest], queries: np.ndarray, k: int
    ) -> list[list[Evidence]]:
        hits = index.vectors["passages"].nearest(queries, k)
        return [[index.material.evidence(*hit) for hit in own] for own in hits]


METHOD = Passages()
