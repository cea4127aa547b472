"""Retriever of an environment."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.retrieval.index import connect, method_of, open_index
from platform_sdk.retrieval.milvus import CALL_SECONDS, Watch
from platform_sdk.retrieval.retriever import IndexRetriever, Retriever


def build_retriever(environment: str, run_dir: Path, spec: RetrievalSpec) -> Retriever:
    """Return the retriever of ``environment``: the recipe's retriever service, else one over the run's index."""
    if spec.url is None:
        return open_retriever(environment, run_dir, spec)
    return connect(run_dir, spec, environment)


def open_retriever(
    environment: str, run_dir: Path, spec: RetrievalSpec, *, show_progress: bool = True,
    watch: Watch = lambda done, rows: None, call_seconds: float = CALL_SECONDS,
) -> IndexRetriever:  # fmt: skip
    """Return the retriever of ``environment`` over the run directory's data; see ``open_index``."""
    method = method_of(environment, spec)
    index = open_index(method, run_dir, spec, show_progress=show_progress, watch=watch, call_seconds=call_seconds)
    return IndexRetriever(method, index)
