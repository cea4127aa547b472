"""The retriever of an environment: what its ``Search`` looks in decides which one."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.retrieval.index import Form, connect, load_material, open_index
from platform_sdk.retrieval.load import load_encoder
from platform_sdk.retrieval.milvus import CALL_SECONDS, Watch
from platform_sdk.retrieval.search import (
    ContextRetriever,
    IndexRetriever,
    PassageRetriever,
    Retriever,
    TripleRetriever,
)

RETRIEVERS: dict[Form, type[IndexRetriever]] = {
    "passages": PassageRetriever,
    "triples": TripleRetriever,
    "contexts": ContextRetriever,
}


def build_retriever(environment: str, run_dir: Path, spec: RetrievalSpec) -> Retriever:
    """The retriever of ``environment``: the service that the recipe names, or else one of the run's own.

    Raises:
        UserError: see ``open_retriever`` and ``connect``.
        RetrieverFault: Milvus, the embeddings endpoint or the service failed.
    """
    if spec.url is None:
        return open_retriever(environment, run_dir, spec)
    return connect(run_dir, spec, environment)


def open_retriever(
    environment: str,
    run_dir: Path,
    spec: RetrievalSpec,
    *,
    show_progress: bool = True,
    watch: Watch = lambda done, rows: None,
    call_seconds: float = CALL_SECONDS,
) -> IndexRetriever:
    """The retriever of ``environment`` over the run directory's corpus; builds the index if need be.

    Args:
        watch: told how far a build is; see there.
        call_seconds: how long a search waits for one answer of a Milvus server.

    Raises:
        UserError: see ``load_material``, ``load_encoder`` and ``open_vectors``.
        RetrieverFault: Milvus or the embeddings endpoint failed.
    """
    material = load_material(run_dir, environment)
    encoder = load_encoder(**spec.encoder_settings())
    vectors = open_index(
        run_dir, spec, material, encoder, show_progress=show_progress, watch=watch, call_seconds=call_seconds
    )
    try:
        return RETRIEVERS[material.form](material, vectors, encoder)
    except UserError:
        vectors.close()
        raise
