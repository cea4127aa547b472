"""No retrieval: every search returns nothing. A baseline without corpus, encoder or index."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from platform_sdk.records import Evidence
from platform_sdk.retrieval.method import Index, Material, NoSettings, RetrievalMethod
from platform_sdk.sampling.rollout import SearchRequest


class Nothing(RetrievalMethod[Material, NoSettings]):
    """Find nothing."""

    settings = NoSettings

    def load(self, run_dir: Path, settings: NoSettings) -> Material:
        return Material(hashlib.sha256().hexdigest())

    def find(
        self, index: Index[Material, NoSettings], requests: Sequence[SearchRequest], queries: np.ndarray, k: int
    ) -> list[list[Evidence]]:
        return [[] for _ in requests]


METHOD = Nothing()
