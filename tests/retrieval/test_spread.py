"""The graphs of a batch of queries against networkx, on random names of random passages."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from platform_sdk.retrieval.spread import Spread, start_chances

DAMPING = 0.7


def drawn(seed: int, passages: int, names: int) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Draw two matrices of weights with the same entries."""
    random = np.random.default_rng(seed)
    entries = random.random((passages, names)) < 0.3
    leaving, arriving = (entries * (0.1 + random.random(entries.shape)) for _ in range(2))
    return sparse.csr_matrix(leaving), sparse.csr_matrix(arriving)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12), st.integers(1, 8))
def test_ranks_of_each_query_equal_networkx_on_the_whole_walk(seed: int, passages: int, names: int) -> None:
    leaving, arriving = drawn(seed, passages, names)
    random = np.random.default_rng(seed)
    seeds = [(np.sort(random.choice(passages, 2, replace=False)), start_chances(random.random(2))) for _ in range(3)]
    spread = Spread.over(leaving, arriving, arriving.T.tocsr(), seeds)
    ranks = spread.ranks(DAMPING)
    for query, (rows, chances) in enumerate(seeds):
        own = spread.owners == query
        nodes = spread.passages[own]
        shared = (leaving.toarray() > 0).astype(int) @ (leaving.toarray() > 0).T.astype(int)
        assert set(nodes) == set(rows) | set(np.flatnonzero(shared[rows].any(axis=0)))
        network = nx.DiGraph()
        network.add_nodes_from((("passage", at) for at in nodes), start=0.0)
        for at in nodes:
            for name in leaving[at].indices:
                network.add_edge(("passage", at), ("name", name), weight=leaving[at, name])
                network.add_edge(("name", name), ("passage", at), weight=arriving[at, name])
        # A move of ours is two of networkx, which must restart at passages only: the product has the passages alone.
        matrix = nx.to_numpy_array(network)
        steps = np.divide(
            matrix, matrix.sum(1, keepdims=True), out=np.zeros_like(matrix), where=matrix.sum(1, keepdims=True) > 0
        )
        walk = (steps @ steps)[: len(nodes), : len(nodes)]
        start = {at: float(chances[list(rows).index(node)]) if node in rows else 0.0 for at, node in enumerate(nodes)}
        graph = nx.from_numpy_array(walk, create_using=nx.DiGraph)
        expected = nx.pagerank(graph, alpha=DAMPING, personalization=start, tol=1e-12, max_iter=1000)
        assert ranks[own] == pytest.approx([expected[at] for at in range(len(nodes))], abs=1e-5)


def test_equal_scores_start_with_equal_chances() -> None:
    assert start_chances(np.array([2.0, 2.0])).tolist() == [0.5, 0.5]
    assert start_chances(np.array([3.0, 2.0, 1.0])).tolist() == [0.8, 0.2, 0]
