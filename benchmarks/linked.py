"""Linked search compared with plain search, and its PageRank compared with networkx's on the same graphs.

The corpus is random: passages have a title, words by Zipf's law and mentions of other titles. Vectors are random, too;
a query's vector is near one passage. The variants take turns and are timed in CPU seconds, which a busy machine
distorts least. Encoding a query is the same for both methods and is not timed. networkx must compute the same ranks.

    OMP_NUM_THREADS=1 python benchmarks/linked.py [--passages 100000] [--queries 256]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.records import Evidence, Passage
from platform_sdk.retrieval.method import Index, NoSettings
from platform_sdk.retrieval.methods import linked, passages
from platform_sdk.retrieval.milvus import Vectors
from platform_sdk.retrieval.spread import Spread, start_chances
from platform_sdk.sampling.rollout import SearchRequest

K, BATCH, DIMENSION = 10, 64, 384
WORDS, VOCABULARY = 80, 200_000
Search = Callable[[Sequence[SearchRequest], np.ndarray], list[list[Evidence]]]


@dataclass(frozen=True)
class InMemory(Vectors):
    """A collection after Milvus Lite has returned all rows."""

    matrix: np.ndarray = field(kw_only=True)

    def fetch(self, rows: Sequence[int]) -> np.ndarray:
        return self.matrix[np.asarray(rows)]


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def drawn_corpus(size: int, random: np.random.Generator) -> list[Passage]:
    """Draw passages of 80 words, of which five name other passages; the most named are in thousands of passages."""
    ranks = random.zipf(1.2, size=(size, WORDS)) % VOCABULARY
    named = (
        random.zipf(1.3, size=(size, 5)) - 1 + random.integers(0, size, (size, 1)) * (random.random((size, 5)) < 0.8)
    ) % size
    return [
        Passage(
            id=f"{row:07}", title=f"Name{row} Given{row % 97}",
            text=" ".join(f"w{rank}" for rank in ranks[row])
            + "".join(f" with Name{at} Given{at % 97}," for at in named[row]),
        )
        for row in range(size)
    ]  # fmt: skip


def timed(search: Search, requests: Sequence[SearchRequest], queries: np.ndarray) -> tuple[float, list[list[Evidence]]]:
    began = time.process_time()
    found = search(requests, queries)
    return 1000 * (time.process_time() - began), found


def compare(sides: dict[str, Search], requests: list[SearchRequest], queries: np.ndarray, at_once: int) -> None:
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for search in sides.values():
        search(requests[:at_once], queries[:at_once])
    for start in range(0, len(requests), at_once):
        part = slice(start, start + at_once)
        for name, search in sides.items():
            spent[name].append(timed(search, requests[part], queries[part])[0])
    (plain50, plain95), (own50, own95) = (np.quantile(spent[name], (0.5, 0.95)) for name in sides)
    print(
        f"{at_once:3} at once: plain p50 {plain50:.1f}, p95 {plain95:.1f} CPU ms; linked {own50:.1f}, {own95:.1f}; "
        f"ratio {own50 / plain50:.2f}, {own95 / plain95:.2f}"
    )


def compare_ranks(links: linked.Links, damping: float, random: np.random.Generator, count: int) -> None:
    """Rank the graphs of ``count`` drawn queries, here in one batch and by networkx one by one, and compare."""
    seeds = [
        (random.choice(len(links.order), 10, replace=False), start_chances(random.random(10))) for _ in range(count)
    ]  # fmt: skip
    began = time.process_time()
    spread = Spread.over(links.names.leaving, links.names.arriving, links.members, seeds)
    ranks = spread.ranks(damping)
    own = time.process_time() - began
    peer = 0.0
    to_names, to_passages = spread.steps
    for query in range(count):
        rows = np.flatnonzero(spread.owners == query)
        walk = (to_names[rows] @ to_passages)[:, rows]
        network = nx.from_scipy_sparse_array(walk, create_using=nx.DiGraph)
        start = dict(enumerate(spread.start[rows].tolist()))
        began = time.process_time()
        found = nx.pagerank(network, alpha=damping, personalization=start, tol=1e-9, max_iter=200)
        peer += time.process_time() - began
        assert np.allclose(ranks[rows], [found[at] for at in range(len(rows))], atol=1e-5)
    size = len(ranks) / count
    print(
        f"PageRank of graphs of {size:.0f} passages: {1000 * own / count:.2f} CPU ms a query, with making the graph; "
        f"networkx {1000 * peer / count:.2f} without it, {peer / own:.0f} times; ranks equal to 1e-5"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=256)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    corpus = drawn_corpus(options.passages, random)
    matrix = unit(random.standard_normal((options.passages, DIMENSION), np.float32))
    vectors = {"passages": InMemory(None, "passages", len(corpus), 0, RetrievalSpec(), Path(), matrix=matrix)}  # type: ignore[arg-type]
    settings = linked.LinkedSettings()
    material = linked.LinkedMaterial("drawn", corpus, settings.shared)
    began = time.process_time()
    material.warm()
    built = time.process_time() - began
    print(f"{options.passages} passages, {DIMENSION} dimensions, k = {K}; tables built in {built:.1f} CPU s")
    encoder: Any = None
    indexes: list[Index[Any, Any]] = [
        Index(passages.PassageMaterial("drawn", corpus), NoSettings(), encoder, vectors),
        Index(material, settings, encoder, vectors),
    ]
    sides: dict[str, Search] = {
        "plain": lambda requests, queries: passages.METHOD.find(indexes[0], requests, queries, K),
        "linked": lambda requests, queries: linked.METHOD.find(indexes[1], requests, queries, K),
    }
    rows = random.integers(0, options.passages, options.queries)
    requests = [
        SearchRequest(" ".join(["What is", corpus[row].title, *corpus[row].text.split()[:10], "?"])) for row in rows
    ]
    queries = unit(matrix[rows] + 0.05 * random.standard_normal((len(rows), DIMENSION)))
    for at_once in (1, BATCH):
        compare(sides, requests, queries, at_once)
    compare_ranks(material.links, settings.damping, random, BATCH)


if __name__ == "__main__":
    main()
