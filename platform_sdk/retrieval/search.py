"""The retrievers: requests in, ranked evidence out, one batch of vectors and one Milvus call each.

Evidence is ranked by cosine similarity of unit vectors (rounded to 6 digits), ties by row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.records import Evidence, Passage
from platform_sdk.retrieval.encoders import Encoder, load_encoder
from platform_sdk.retrieval.index import Material, load_material, open_index
from platform_sdk.retrieval.milvus import Hit, Vectors, rank
from platform_sdk.sampling.rollout import SearchRequest


class Retriever(Protocol):
    """Answers an agent's searches. ``corpus_digest`` says in what, and goes into every rollout."""

    corpus_digest: str

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        """At most ``k`` pieces of evidence for each request, best first.

        Raises:
            RetrieverFault: what the retriever rests on failed; asking again may help.
        """
        ...


class IndexRetriever(ABC):
    """A retriever over an index. Use it as a context manager, so that the Milvus Lite file is let go."""

    def __init__(self, material: Material, vectors: Vectors, encoder: Encoder) -> None:
        self.corpus_digest = material.digest
        self.encoder_digest = encoder.digest
        self._rows, self._vectors, self._encoder = material.rows, vectors, encoder

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        if k < 1:
            raise ValueError(f"k must be 1 or more, not {k}")
        if not requests:
            return []
        queries = self._encoder.encode([request.query for request in requests], kind="query")
        return [[self._evidence(hit) for hit in hits] for hits in self._hits(requests, queries, k)]

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
        return Evidence(kind="triple", id=str(number), title=row.head, text=row.text, score=score)


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
        for number, triple in enumerate(material.rows):
            assert not isinstance(triple, Passage)
            self._by_head[triple.head].append(number)

    def _visible(self, request: SearchRequest) -> Sequence[int]:
        if request.head is None:
            raise ValueError(f"a search of the graph needs the entity to start from: {request}")
        return self._by_head.get(request.head, [])


class ContextRetriever(_RowRetriever):
    """The question's own passages, by similarity to the query."""

    def __init__(self, material: Material, vectors: Vectors, encoder: Encoder) -> None:
        super().__init__(material, vectors, encoder)
        places = {
            (row.title, row.text): number for number, row in enumerate(material.rows) if isinstance(row, Passage)
        }
        self._by_question = {
            question.id: sorted({places[passage.title, passage.text] for passage in question.context})
            for question in material.questions
        }

    def _visible(self, request: SearchRequest) -> Sequence[int]:
        if request.question_id not in self._by_question:
            raise ValueError(f"no passages are known of question {request.question_id!r}")
        return self._by_question[request.question_id]


def build_retriever(
    environment: str, run_dir: Path, spec: RetrievalSpec, *, show_progress: bool = True
) -> IndexRetriever:
    """The retriever of ``environment`` over the run directory's corpus; builds the index if need be.

    Raises:
        UserError: see ``load_material``, ``load_encoder`` and ``open_vectors``.
        RetrieverFault: Milvus or the embeddings endpoint failed.
    """
    material = load_material(run_dir, environment)
    encoder = load_encoder(**spec.encoder_settings())
    vectors = open_index(run_dir, spec, material, encoder, show_progress=show_progress)
    return RETRIEVERS[material.form](material, vectors, encoder)


RETRIEVERS: dict[str, type[IndexRetriever]] = {
    "passages": PassageRetriever,
    "triples": TripleRetriever,
    "contexts": ContextRetriever,
}
