"""Several queries in one request: each is searched, and the lists are fused by reciprocal rank.

A request's queries are its lines, and its questions within a line. The score of a piece of evidence is the sum of
1 / (60 + place) over the lists that have it among their first ``depth`` places (Cormack et al., 2009), or else
1 / (60 + place) of its best place: so the order does not depend on the number of results. A single query has the base
method's results.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from platform_sdk.config.struct import Struct
from platform_sdk.records import Evidence
from platform_sdk.retrieval.method import Index, Material, RetrievalMethod, load_method
from platform_sdk.sampling.rollout import SearchRequest

SMOOTHING = 60
SCORE_DIGITS = 9
_BREAK = re.compile(r"[\r\n]+|(?<=\?)\s+")


class MultiQuerySettings(Struct):
    """Settings of the search by several queries."""

    base: Literal["passages", "lexical", "linked"] = Field("linked", description="Method that searches each query.")
    depth: int = Field(20, ge=1, le=1000, description="Results of each query that are fused.")


def queries_in(text: str) -> list[str]:
    """Return the distinct queries of a text in order; the text itself if it is blank."""
    return list(dict.fromkeys(part.strip() for part in _BREAK.split(text) if part.strip())) or [text]


class MultiQuery(RetrievalMethod[Material, MultiQuerySettings]):
    """Search each query of a request, and fuse the results."""

    settings = MultiQuerySettings

    def load(self, run_dir: Path, settings: MultiQuerySettings) -> Material:
        base = load_method(settings.base)
        material: Material = base.load(run_dir, base.settings())
        return material

    def find(
        self, index: Index[Material, MultiQuerySettings], requests: Sequence[SearchRequest], queries: np.ndarray, k: int
    ) -> list[list[Evidence]]:
        base = load_method(index.settings.base)
        inner = Index(index.material, base.settings(), index.encoder, index.vectors)
        parts = [queries_in(request.query) for request in requests]
        texts = list(dict.fromkeys(text for own in parts for text in own))
        vectors = index.encoder.encode(texts, kind="query")
        depth = max(k, index.settings.depth)
        found = dict(zip(texts, base.find(inner, [SearchRequest(text) for text in texts], vectors, depth), strict=True))
        return [
            found[own[0]][:k] if len(own) == 1 else fused({text: found[text] for text in own}, k, index.settings.depth)
            for own in parts
        ]


def fused(lists: dict[str, list[Evidence]], k: int, depth: int) -> list[Evidence]:
    """Return the ``k`` best by reciprocal rank; ties by id. ``parts`` are the summands by query."""
    placed = [(place, text, hit) for text, hits in lists.items() for place, hit in enumerate(hits, start=1)]
    parts: dict[str, dict[str, float]] = {}
    evidence: dict[str, Evidence] = {}
    for place, text, hit in sorted(placed, key=lambda entry: max(entry[0], depth)):
        own = parts.setdefault(hit.id, {})
        if place <= depth or not own:
            own[text] = round(1 / (SMOOTHING + place), SCORE_DIGITS)
        evidence.setdefault(hit.id, hit)
    scores = {id: round(sum(own.values()), SCORE_DIGITS) for id, own in parts.items()}
    ordered = sorted(scores, key=lambda id: (-scores[id], id))[:k]
    return [evidence[id].model_copy(update={"score": scores[id], "parts": {**parts[id]}}) for id in ordered]


METHOD = MultiQuery()
