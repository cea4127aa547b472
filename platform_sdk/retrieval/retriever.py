"""Retriever: ranked evidence for a batch of requests, with one encoder call and one Milvus call.

Similarity is the cosine of unit vectors (rounded to 6 digits), ties by row; a method may use further criteria.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

from platform_sdk.records import Evidence
from platform_sdk.retrieval.method import Index, RetrievalMethod
from platform_sdk.sampling.rollout import SearchRequest


class InvalidRequest(ValueError):
    """A search that the retrieval method refuses."""


class Retriever(Protocol):
    """Search engine of an agent. ``corpus_digest`` identifies the corpus and goes into every rollout."""

    corpus_digest: str
    encoder: str

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        """Return at most ``k`` pieces of evidence for each request, best first.

        Raises:
            InvalidRequest: the retrieval method refuses a request.
            RetrieverFault: a dependency of the retriever failed; a retry may help.
        """
        ...

    def close(self) -> None:
        """Release files and connections, as leaving the context manager does."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class IndexRetriever(Retriever):
    """A method over its index. Use it as a context manager to release the Milvus Lite file."""

    def __init__(self, method: RetrievalMethod[Any, Any], index: Index[Any, Any]) -> None:
        self.method, self.index = method, index
        self.corpus_digest, self.encoder = index.material.digest, index.encoder.name

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        if k < 1:
            raise ValueError(f"k must be 1 or more, not {k}")
        if not requests:
            return []
        for request in requests:
            if wrong := self.refusal(request):
                raise InvalidRequest(f"{wrong}: {request}")
        return self.find(requests, self.encode(requests), k)

    def encode(self, requests: Sequence[SearchRequest]) -> np.ndarray:
        """Return the vectors of the queries in order: the first half of a search."""
        return self.index.encoder.encode([request.query for request in requests], kind="query")

    def find(self, requests: Sequence[SearchRequest], queries: np.ndarray, k: int) -> list[list[Evidence]]:
        """Return the evidence for the vectors from ``encode``: the second half of a search."""
        # Deduplicate: many rollouts send equal requests.
        places = {request: place for place, request in enumerate(requests)}
        hits = self.method.find(self.index, list(places), queries[list(places.values())], k)
        found = dict(zip(places, hits, strict=True))
        return [found[request] for request in requests]

    def refusal(self, request: SearchRequest) -> str | None:
        """Return the error of a request, or None."""
        if missing := [key for key in self.method.scope if key not in request.scope]:
            return f"retrieval method {self.method.name} needs {', '.join(missing)} in the scope of every request"
        return self.method.refusal(self.index.material, request)

    def warm(self) -> None:
        """Warm up encoder and index for the first search.

        Raises:
            RetrieverFault: one of them failed.
        """
        self.index.encoder.encode(["Who wrote it?"], kind="query")
        self.index.material.warm()
        for vectors in self.index.vectors.values():
            vectors.warm()

    def close(self) -> None:
        self.index.close()
