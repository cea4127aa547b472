"""Personalised PageRank against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from platform_sdk.retrieval.pagerank import personalised_pagerank, stochastic

GRAPHS = st.integers(1, 8).flatmap(
    lambda size: st.tuples(
        st.lists(
            st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=size, max_size=size), min_size=size, max_size=size
        ),
        st.lists(st.integers(0, 3), min_size=size, max_size=size).filter(any),
    )
)  # fmt: skip
DAMPING = st.sampled_from([0.0, 0.3, 0.5, 0.85])


def ranks(edges: list[list[int]], start: list[int], damping: float) -> np.ndarray:
    walk = stochastic(sparse.csr_matrix(np.array(edges, dtype=np.float64)))
    return personalised_pagerank((walk,), np.array(start) / sum(start), damping, tolerance=1e-12)


@settings(max_examples=60, deadline=None)
@given(GRAPHS, DAMPING)
def test_ranks_equal_networkx_on_random_graphs(graph: tuple[list[list[int]], list[int]], damping: float) -> None:
    edges, start = graph
    network = nx.from_numpy_array(np.array(edges, dtype=float), create_using=nx.DiGraph)
    expected = nx.pagerank(
        network, alpha=damping, personalization=dict(enumerate(start)), tol=1e-13, max_iter=1000, weight="weight"
    )
    found = ranks(edges, start, damping)
    assert found == pytest.approx([expected[node] for node in range(len(start))], abs=1e-9)
    assert found.sum() == pytest.approx(1)


@settings(max_examples=20, deadline=None)
@given(st.lists(GRAPHS, min_size=2, max_size=4), DAMPING)
def test_ranks_of_a_graph_have_the_same_bits_in_any_company(
    graphs: list[tuple[list[list[int]], list[int]]], damping: float
) -> None:
    walk = stochastic(sparse.block_diag([np.array(edges, dtype=float) for edges, _ in graphs], format="csr"))
    start = np.concatenate([np.array(own) / sum(own) for _, own in graphs])
    owners = np.repeat(np.arange(len(graphs)), [len(own) for _, own in graphs])
    together = personalised_pagerank((walk,), start, damping, owners, tolerance=1e-12)
    assert together.tolist() == np.concatenate([ranks(*graph, damping) for graph in graphs]).tolist()


def test_ranks_by_hand() -> None:
    """Half of the walks restart at the first of two nodes, which point to each other: x = 1/2 + y/2, y = x/2."""
    assert ranks([[0, 1], [1, 0]], [1, 0], 0.5) == pytest.approx([2 / 3, 1 / 3])
