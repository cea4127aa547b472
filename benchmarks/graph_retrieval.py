"""Retrieval over a hypergraph with hubs, against plain readings of the published designs.

* ``chunk``: the nearest of a collection's vectors, against faiss's ``IndexFlatIP``.
* ``graph_r1``: against faiss over entities and hyperedges and a networkx graph for neighbours, as Graph-R1 does it.
* ``prograph``: against its formulas, read with networkx and numpy.

The graph is drawn: entities of a hyperedge by Zipf's law, so that a few are in thousands of hyperedges, and queries
name entities as often as hyperedges do. All sides take turns, return equal lists, and are timed in CPU seconds, since
that is what a busy machine distorts least. First of all the graph grows tenfold three times.

    OMP_NUM_THREADS=1 python benchmarks/graph_retrieval.py [--hyperedges 100000] [--queries 128] [--grow 1000000]
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import faiss
import networkx as nx
import numpy as np

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.graph.graph import Incidence
from platform_sdk.graph.linking import EntityLinker
from platform_sdk.records import Source
from platform_sdk.retrieval.method import Index
from platform_sdk.retrieval.methods import graph_r1, prograph
from platform_sdk.retrieval.milvus import Vectors
from platform_sdk.retrieval.vector_cache import DIGITS
from platform_sdk.sampling.rollout import SearchRequest

K = 10
BATCH = 64
EXPONENT = 0.75  # of Zipf's law: among 100,000 hyperedges the largest hub is in some 6 %, as in the real graphs
Found = list[tuple[str, float]]


@dataclass(frozen=True)
class InMemory(Vectors):
    """A collection after Milvus Lite has returned all rows."""

    matrix: np.ndarray = field(kw_only=True)

    def fetch(self, rows: Sequence[int]) -> np.ndarray:
        return self.matrix[np.asarray(rows)]


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def incidence(rows: np.ndarray, columns: np.ndarray, count: int) -> Incidence:
    order = np.lexsort((columns, rows))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
    return Incidence(indptr.astype(np.int64), columns[order].astype(np.int32))


class MemoryGraph:
    """A drawn graph with as many entities as hyperedges, their vectors, and queries."""

    digest = "drawn"

    def __init__(self, size: int, dimension: int) -> None:
        random = np.random.default_rng(size)
        self.size, self.random = size, random
        weights = np.arange(1, size + 1) ** -EXPONENT
        self.weights = weights / weights.sum()
        joined = random.choice(size, p=self.weights, size=(size, 8))
        joined[np.arange(8) >= random.integers(2, 8, size=size)[:, None]] = -1
        pairs = np.unique(
            np.stack([np.repeat(np.arange(size), 8), joined.ravel()], axis=1)[joined.ravel() >= 0], axis=0
        )
        self.edge_entities = incidence(pairs[:, 0], pairs[:, 1], size)
        self.entity_edges = incidence(pairs[:, 1], pairs[:, 0], size)
        self.entity_ids = [f"v{row}" for row in range(size)]
        self.entity_names = self.entity_ids
        self.hyperedge_ids = self.hyperedge_texts = [f"e{row}" for row in range(size)]
        self.hyperedge_sources = [Source(passage="")] * size
        self.entities, self.hyperedges = (unit(random.standard_normal((size, dimension), np.float32)) for _ in "ve")

    def queries(self, count: int, among: np.ndarray) -> tuple[list[SearchRequest], np.ndarray]:
        """Draw queries that name one to three entities of ``among``; the vector of each is near that of its first."""
        texts, vectors = [], []
        for _ in range(count):
            named = self.random.integers(1, 4)
            rows = self.random.choice(among, named, p=self.weights[among] / self.weights[among].sum())
            texts.append(SearchRequest(" and ".join(self.entity_ids[row] for row in rows)))
            vectors.append(self.entities[rows[0]] + 0.05 * self.random.standard_normal(self.entities.shape[1]))
        return texts, unit(np.array(vectors))

    def index(self, material: type[Any], settings: Any, *more: Any) -> Index[Any, Any]:
        encoder: Any = None
        return Index(material("drawn", self, {}, *more), settings, encoder, self.vectors)

    @cached_property
    def vectors(self) -> dict[str, Vectors]:
        return {
            name: InMemory(None, name, self.size, 0, RetrievalSpec(), Path(), matrix=matrix)  # type: ignore[arg-type]
            for name, matrix in (("entities", self.entities), ("hyperedges", self.hyperedges))
        }


class Here:
    """The methods as they are shipped."""

    def __init__(self, graph: MemoryGraph) -> None:
        self.graph = graph
        self._graph_r1 = graph.index(graph_r1.GraphMaterial, graph_r1.GraphR1Settings())
        settings = prograph.PrographSettings(link_similarity=None)
        linker = EntityLinker([name] for name in graph.entity_names)
        self._prograph = graph.index(prograph.PrographMaterial, settings, linker)

    def chunk(self, requests: Sequence[SearchRequest], queries: np.ndarray) -> list[Found]:
        hits = self.graph.vectors["hyperedges"].nearest(queries, K)
        return [[(self.graph.hyperedge_ids[row], score) for row, score in own] for own in hits]

    def graph_r1(self, requests: Sequence[SearchRequest], queries: np.ndarray) -> list[Found]:
        found = graph_r1.METHOD.find(self._graph_r1, requests, queries, K)
        return [[(hit.id, hit.score) for hit in own] for own in found]

    def prograph(self, requests: Sequence[SearchRequest], queries: np.ndarray) -> list[Found]:
        found = prograph.METHOD.find(self._prograph, requests, queries, K)
        return [[(hit.id, hit.score) for hit in own] for own in found]


class Peer:
    """The published designs, read plainly: faiss for similarity, networkx for the graph, a loop over what it gives.

    Ties are broken as here, by similarity and then by id, so that lists can be compared.
    """

    def __init__(self, graph: MemoryGraph) -> None:
        self.graph = graph
        self.indexes = {}
        for name, vectors in (("entities", graph.entities), ("hyperedges", graph.hyperedges)):
            self.indexes[name] = faiss.IndexFlatIP(vectors.shape[1])
            self.indexes[name].add(vectors)
        self.network = nx.Graph()
        for row in range(graph.size):
            self.network.add_edges_from((~row, int(entity)) for entity in graph.edge_entities.row(row))
        self.rows = {name: row for row, name in enumerate(graph.entity_names)}

    def chunk(self, requests: Sequence[SearchRequest], queries: np.ndarray) -> list[Found]:
        scores, rows = self.indexes["hyperedges"].search(queries, K)
        return [
            [(self.graph.hyperedge_ids[row], float(score)) for row, score in zip(*own, strict=True)]
            for own in zip(rows, scores, strict=True)
        ]

    def graph_r1(self, requests: Sequence[SearchRequest], queries: np.ndarray) -> list[Found]:
        entities = self.indexes["entities"].search(queries, 5)[1]
        hyperedges = self.indexes["hyperedges"].search(queries, 5)[1]
        found = []
        for query, by_entity, by_hyperedge in zip(queries, entities.tolist(), hyperedges.tolist(), strict=True):
            scores: dict[int, float] = {}
            for rank, entity in enumerate(by_entity, start=1):
                for edge in self.network.neighbors(entity) if entity in self.network else ():
                    scores[~edge] = scores.get(~edge, 0.0) + 1 / rank
            for rank, row in enumerate(by_hyperedge, start=1):
                scores[row] = scores.get(row, 0.0) + 1 / rank
            found.append(self._best(query, scores))
        return found

    def prograph(self, requests: Sequence[SearchRequest], queries: np.ndarray) -> list[Found]:
        found = []
        for request, query in zip(requests, queries, strict=True):
            linked = list(dict.fromkeys(self.rows[word] for word in request.query.split() if word in self.rows))
            centre = self.graph.entities[linked].astype(np.float64).mean(axis=0)
            centre /= np.linalg.norm(centre)
            query_edges = {edge for entity in linked for edge in self.network[entity]}
            counts = Counter(entity for edge in query_edges for entity in self.network.neighbors(edge))
            informative = {entity: math.log1p(n / self.network.degree(entity)) for entity, n in counts.items()}
            scores: dict[int, float] = {}
            for edge in {edge for entity in informative for edge in self.network.neighbors(entity)}:
                entities = list(self.network.neighbors(edge))
                weights = np.exp(np.round(self.graph.entities[entities] @ centre, DIGITS))
                values = np.array([informative.get(entity, 0.0) for entity in entities])
                scores[~edge] = float(weights @ values / weights.sum())
            found.append(self._best(query, scores))
        return found

    def _best(self, query: np.ndarray, scores: dict[int, float]) -> Found:
        rounded = {row: round(score, 9) for row, score in scores.items()}
        floor = sorted(rounded.values(), reverse=True)[:K][-1]
        kept = [row for row, score in rounded.items() if score >= floor]
        near = dict(zip(kept, np.round(self.graph.hyperedges[kept] @ query, DIGITS).tolist(), strict=True))
        best = sorted(kept, key=lambda row: (-rounded[row], -near[row], row))[:K]
        return [(self.graph.hyperedge_ids[row], scores[row]) for row in best]


Side = Callable[[Sequence[SearchRequest], np.ndarray], list[Found]]


def timed(side: Side, requests: Sequence[SearchRequest], queries: np.ndarray) -> tuple[float, list[Found]]:
    began = time.process_time()
    found = side(requests, queries)
    return time.process_time() - began, found


def quantiles(seconds: Sequence[float]) -> tuple[float, float]:
    p50, p95 = np.quantile(seconds, (0.5, 0.95))
    return 1000 * float(p50), 1000 * float(p95)


def compare(graph: MemoryGraph, count: int) -> None:
    degrees = np.diff(graph.entity_edges.indptr)
    requests, queries = graph.queries(count, np.flatnonzero(degrees))
    here, peer = Here(graph), Peer(graph)
    print(f"{graph.size} hyperedges and entities, {queries.shape[1]} dimensions, largest hub {degrees.max()}, k = {K}")
    for method in ("chunk", "graph_r1", "prograph"):
        sides: dict[str, Side] = {"here": getattr(here, method), "peer": getattr(peer, method)}
        for at_once in (1, BATCH):
            spent: dict[str, list[float]] = {name: [] for name in sides}
            for side in sides.values():
                side(requests[:1], queries[:1])
            for start in range(0, count, at_once):
                part = slice(start, start + at_once)
                answers = {}
                for name, side in sides.items():
                    seconds, answers[name] = timed(side, requests[part], queries[part])
                    spent[name].append(seconds)
                for own, other in zip(answers["here"], answers["peer"], strict=True):
                    assert [row for row, _ in own] == [row for row, _ in other], (method, own, other)
                    assert np.allclose([score for _, score in own], [score for _, score in other], atol=2e-6)
            (own50, own95), (other50, other95) = map(quantiles, spent.values())
            print(
                f"  {method:9} {at_once:3} at once: p50 {own50:7.1f} and {other50:7.1f} CPU ms, {other50 / own50:5.2f} "
                f"times as fast; p95 {own95:7.1f} and {other95:7.1f}, {other95 / own95:5.2f} times"
            )


def grow(largest: int, count: int) -> None:
    """Show how time and memory grow: for queries of any entities, and of entities in 8 to 16 hyperedges each."""
    print("one query at once, 64 dimensions; prograph's neighbourhood is the hyperedges that share an entity with E_q")
    for size in (10**power for power in range(3, 7) if 10**power <= largest):
        began = time.process_time()
        graph = MemoryGraph(size, 64)
        here = Here(graph)
        opened = time.process_time() - began
        degrees = np.diff(graph.entity_edges.indptr)
        for what, among in (
            ("any", np.flatnonzero(degrees)),
            ("of 8 to 16", np.flatnonzero((degrees >= 8) & (degrees <= 16))),
        ):
            requests, queries = graph.queries(count, among)
            told = []
            for side in (here.prograph, here.graph_r1):
                side(requests[:1], queries[:1])
                seconds = [timed(side, requests[at : at + 1], queries[at : at + 1])[0] for at in range(count)]
                told.append("p50 {:7.2f}, p95 {:7.2f} CPU ms".format(*quantiles(seconds)))
            reached = np.mean([neighbourhood(graph, here, request) for request in requests])
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"  {size:8} {what:10}: neighbourhood {reached:9.0f}; prograph {told[0]}; graph_r1 {told[1]}; "
                f"opened in {opened:.1f} s, peak {peak:.0f} MiB"
            )


def neighbourhood(graph: MemoryGraph, here: Here, request: SearchRequest) -> int:
    edges = graph.entity_edges
    linked = here._prograph.material.linker.link(request.query)
    none = np.empty(0, dtype=np.int32)
    around = np.unique(np.concatenate([none, *(graph.edge_entities.row(int(e)) for v in linked for e in edges.row(v))]))
    return len(np.unique(np.concatenate([none, *(edges.row(int(v)) for v in around)])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hyperedges", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=128)
    parser.add_argument("--grow", type=int, default=1_000_000, help="the largest graph of the first part")
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    grow(arguments.grow, min(arguments.queries, 64))  # first, so that the peak memory is its own
    compare(MemoryGraph(arguments.hyperedges, arguments.dimension), arguments.queries)


if __name__ == "__main__":
    main()
