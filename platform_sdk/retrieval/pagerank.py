"""Personalised PageRank on sparse matrices, for one or several graphs at once.

The definition is networkx's: a walk continues with probability ``damping``, and otherwise, or at a node without
outgoing edges, restarts at a node drawn from ``start``. The number of moves depends only on ``damping``, so the ranks
of a graph have the same bits whatever other graphs are computed with it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

TOLERANCE = 1e-5
"""Bound on the summed error of a graph's ranks."""


def stochastic(weights: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return ``weights`` with each row divided by its sum; a row of zeros stays."""
    lengths = np.diff(weights.indptr)
    totals = np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights.data, minlength=len(lengths)).astype(
        np.float64
    )
    factors = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    return sparse.csr_matrix(
        (weights.data * np.repeat(factors, lengths), weights.indices, weights.indptr), shape=weights.shape
    )


def personalised_pagerank(
    steps: tuple[sparse.csr_matrix, ...], start: np.ndarray, damping: float, graphs: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
) -> np.ndarray:  # fmt: skip
    """Return the rank of each node; the ranks of a graph sum to 1.

    Args:
        steps: one move of the walk as a product of matrices whose rows sum to 1 or 0, such as from passages to names
            and from names to passages. The nodes are the rows of the first and the columns of the last.
        start: the probability of each node at a restart; the sum of each graph is 1.
        damping: at least 0 and below 1.
        graphs: the number of each node's graph; one graph by default. No edge joins two graphs.
        tolerance: bound on the summed error of a graph's ranks.
    """
    owners = np.zeros(len(start), dtype=np.int64) if graphs is None else graphs
    backward = [matrix.T.tocsr() for matrix in steps]
    # Each move multiplies the error, 2 at most, by ``damping``.
    moves = math.ceil(math.log(tolerance / 2) / math.log(damping)) if damping > 0 else 1
    ranks = start
    for _ in range(max(1, moves)):
        moved = ranks
        for matrix in backward:
            moved = matrix @ moved
        moved = damping * moved
        restarts = 1.0 - np.bincount(owners, moved)
        ranks = moved + restarts[owners] * start
    return ranks
