"""A graph of a few facts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from platform_sdk.graph.facts import Extraction, Fact
from platform_sdk.graph.graph import Graph, write_graph
from platform_sdk.record_files import write_jsonl


def graph_of(facts: Iterable[Fact], titles: Iterable[tuple[str, str]] = ()) -> Graph:
    """Return the graph of a few facts. Its files are deleted at once; it lives as long as the object."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "facts.jsonl"
        write_jsonl(path, Extraction, (Extraction(chunk=str(i), facts=(fact,)) for i, fact in enumerate(facts)))
        return write_graph(Path(folder), [path], titles=titles, extractor="given", version=1, inputs="")
