"""The retrievers: requests in, ranked evidence out, one batch of vectors and one Milvus call each.

Evidence is ranked by cosine similarity of unit vectors (rounded to 6 digits), ties by row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np

from platform_sdk.config.errors import UserError
from platform_sdk.records import Evidence, Passage, Triple
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.index import Material
from platform_sdk.retrieval.milvus import Hit, Vectors, rank
from platform_sdk.sampling.rollout import SearchRequest


class Retriever(Protocol):
    """Answers an agent's searches. ``corpus_digest`` says in what, and goes into every rollout; ``encoder`` by what."""

    corpus_digest: str
    encoder: str

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        """At most ``k`` pieces of evidence for each request, best first.

        Raises:
            RetrieverFault: what the retriever rests on failed; asking again may help.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections; leaving it as a context manager does the same."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class IndexRetriever(ABC):
    """A retriever over an index. Use it as a context manager, so that the Milvus Lite file is let go."""

    def __init__(self, material: Material, vectors: Vectors, encoder: Encoder) -> None:
        self.corpus_digest = material.digest
        self.encoder, self.encoder_digest = encoder.name, encoder.digest
        self._rows, self._vectors, self._encoder = material.rows, vectors, encoder

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        if k < 1:
            raise ValueError(f"k must be 1 or more, not {k}")
        if not requests:
            return []
        for request in requests:
            if wrong := self.refusal(request):
                raise ValueError(f"{wrong}: {request}")
        return self.find(requests, self.encode(requests), k)

    def encode(self, requests: Sequence[SearchRequest]) -> np.ndarray:
        """The vectors of the queries, in their order: the first half of a search."""
        return self._encoder.encode([request.query for request in requests], kind="query")

    def find(self, requests: Sequence[SearchRequest], queries: np.ndarray, k: int) -> list[list[Evidence]]:
        """What is near ``queries``, which ``encode`` gave: the second half of a search."""
        # Many rollouts ask the same: it is looked up once.
        places = {request: place for place, request in enumerate(requests)}
        hits = self._hits(list(places), queries[list(places.values())], k)
        found = {request: [self._evidence(hit) for hit in own] for request, own in zip(places, hits, strict=True)}
        return [found[request] for request in requests]

    @property
    def rows(self) -> int:
        """How many passages or triples there are."""
        return len(self._rows)

    def refusal(self, request: SearchRequest) -> str | None:
        """What is wrong with a request that this retriever cannot make sense of; None if nothing is."""
        return None

    def warm(self) -> None:
        """Bring encoder and index to life, so that the first search does not wait for them.

        Raises:
            RetrieverFault: one of them failed.
        """
        self._encoder.encode(["Who wrote it?"], kind="query")
        self._vectors.fetch([0])

    def close(self) -> None:
        self._vectors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _hits(self, requests: Sequence[SearchRequest], queries: np.ndarray, k: int) -> list[list[Hit]]: ...

    def _evidence(self, hit: Hit) -> Evidence:
        number, score = hit
        row = self._rows[number]
        if isinstance(row, Passage):
            return Evidence(kind="passage", id=row.id, title=row.title, text=row.text, score=score)
        # The tail is where the triple leads: the agent's next candidate.
        return Evidence(kind="triple", id=str(number), title=row.tail, text=row.text, score=score)


class PassageRetriever(IndexRetriever):
    """The nearest passages of the whole corpus."""

    def _hits(self, requests: Sequence[SearchRequest], queries: np.ndarray, k: int) -> list[list[Hit]]:
        return self._vectors.nearest(queries, k)


class _RowRetriever(IndexRetriever):
    """Ranks the few rows that a request may see. Their vectors come from the index, once."""

    def __init__(self, material: Material, vectors: Vectors, encoder: Encoder) -> None:
        super().__init__(material, vectors, encoder)
        self._known: dict[int, np.ndarray] = {}

    @abstractmethod
    def _visible(self, request: SearchRequest) -> Sequence[int]:
        """The rows that ``request`` may see."""

    def _hits(self, requests: Sequence[SearchRequest], queries: np.ndarray, k: int) -> list[list[Hit]]:
        visible = [self._visible(request) for request in requests]
        new = sorted({row for rows in visible for row in rows} - self._known.keys())
        if new:
            self._known |= dict(zip(new, self._vectors.fetch(new), strict=True))
        return [
            rank(query, rows, np.array([self._known[row] for row in rows]))[:k]
            for query, rows in zip(queries, visible, strict=True)
        ]


class TripleRetriever(_RowRetriever):
    """The triples whose head is the entity visited, by similarity to the sub-question.

    An entity without triples gives no evidence: that is the graph's answer, not a fault.
    """

    def __init__(self, material: Material, vectors: Vectors, encoder: Encoder) -> None:
        super().__init__(material, vectors, encoder)
        self._by_head: defaultdict[str, list[int]] = defaultdict(list)
        for number, row in enumerate(material.rows):
            if isinstance(row, Triple):
                self._by_head[row.head].append(number)

    def refusal(self, request: SearchRequest) -> str | None:
        return "a search of the graph needs the entity to start from (head)" if request.head is None else None

    def _visible(self, request: SearchRequest) -> Sequence[int]:
        assert request.head is not None  # else refused
        return self._by_head.get(request.head, [])


class ContextRetriever(_RowRetriever):
    """The question's own passages, by similarity to the query."""

    def __init__(self, material: Material, vectors: Vectors, encoder: Encoder) -> None:
        super().__init__(material, vectors, encoder)
        places = {(row.title, row.text): number for number, row in enumerate(material.rows) if isinstance(row, Passage)}
        self._by_question: dict[str, list[int]] = {}
        for question in material.questions:
            own = {places.get((passage.title, passage.text)) for passage in question.context}
            known = sorted(place for place in own if place is not None)
            if len(known) < len(own):
                raise UserError(
                    f"question {question.id} has passages that are not in the corpus; leave dataset.corpus out, "
                    "so that the corpus is made of the questions' own passages"
                )
            self._by_question[question.id] = known

    def refusal(self, request: SearchRequest) -> str | None:
        known = request.question_id in self._by_question
        return None if known else f"no passages are known of question {request.question_id!r} (question_id)"

    def _visible(self, request: SearchRequest) -> Sequence[int]:
        assert request.question_id is not None  # else refused
        return self._by_question[request.question_id]
