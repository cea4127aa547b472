"""Graphs of a batch of queries: passages that share names with each query's best passages, in one sparse matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from platform_sdk.retrieval.csr import row_entries
from platform_sdk.retrieval.pagerank import personalised_pagerank, stochastic

RANK_DIGITS = 9
EXPLAINED = 5
"""Most names in a result."""


@dataclass(frozen=True)
class Spread:
    """A bipartite graph of passages (rows of ``leaving`` and ``arriving``) and names (columns) for each query.

    ``owners`` is the query of each row, ascending, ``passages`` its passage, ascending within a query; ``names`` is the
    name of each column. A walk goes from a passage to one of its names with the weights ``leaving``, and on to one of
    the name's passages with the weights ``arriving``.
    """

    owners: np.ndarray
    passages: np.ndarray
    names: np.ndarray
    leaving: sparse.csr_matrix
    arriving: sparse.csr_matrix
    start: np.ndarray

    @classmethod
    def over(
        cls, leaving: sparse.csr_matrix, arriving: sparse.csr_matrix, members: sparse.csr_matrix,
        seeds: Sequence[tuple[np.ndarray, np.ndarray]],
    ) -> Spread:  # fmt: skip
        """Return the graphs of the passages that share a name with seeds, and of all names among these passages.

        Args:
            leaving: ``leaving[passage, name]`` of the whole corpus.
            arriving: a matrix with the same entries and other values.
            members: either matrix, transposed; its values are not read.
            seeds: distinct passages for each query, at least one, with the probability of a start at each.
        """
        passages, names = leaving.shape
        owners = np.repeat(np.arange(len(seeds)), [len(rows) for rows, _ in seeds])
        first = owners * passages + np.concatenate([rows for rows, _ in seeds])
        places, which = row_entries(leaving.indptr, first % passages)
        joined = np.unique((first // passages)[which] * names + leaving.indices[places])
        places, which = row_entries(members.indptr, joined % names)
        nodes = np.union1d(first, (joined // names)[which] * passages + members.indices[places])
        places, which = row_entries(leaving.indptr, nodes % passages)
        keys, columns = np.unique((nodes // passages)[which] * names + leaving.indices[places], return_inverse=True)
        indptr = np.searchsorted(which, np.arange(len(nodes) + 1))
        shape = (len(nodes), len(keys))
        own_leaving, own_arriving = (
            sparse.csr_matrix((matrix.data[places], columns, indptr), shape=shape) for matrix in (leaving, arriving)
        )
        start = np.zeros(len(nodes))
        start[np.searchsorted(nodes, first)] = np.concatenate([chances for _, chances in seeds])
        own_names = keys % names if names else keys
        return cls(nodes // passages, nodes % passages, own_names, own_leaving, own_arriving, start)

    @cached_property
    def steps(self) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
        """Return the transition probabilities from passages to names, and from names to passages."""
        return stochastic(self.leaving), stochastic(self.arriving.T.tocsr())

    def ranks(self, damping: float) -> np.ndarray:
        """Return the PageRank of each row in its query's graph."""
        ranks = personalised_pagerank(self.steps, self.start, damping, self.owners)
        return np.asarray(np.round(ranks, RANK_DIGITS))

    def brought(self, ranks: np.ndarray) -> np.ndarray:
        """Return the rank that each row got through each of its names from other rows, by entry of ``arriving``."""
        to_names = self.steps[0]
        rows = np.repeat(np.arange(len(ranks)), np.diff(to_names.indptr))
        flows = ranks[rows] * to_names.data
        columns = to_names.indices
        names = np.bincount(columns, flows, minlength=len(self.names))
        totals = np.bincount(columns, self.arriving.data, minlength=len(self.names))
        return np.asarray(np.round((names[columns] - flows) * self.arriving.data / totals[columns], RANK_DIGITS))

    def reasons(self, brought: np.ndarray, row: int) -> list[int]:
        """Return the names that brought rank to a row, highest rank first."""
        own = slice(self.arriving.indptr[row], self.arriving.indptr[row + 1])
        names = self.names[self.arriving.indices[own]].tolist()
        ordered = sorted(zip(brought[own].tolist(), names, strict=True), key=lambda entry: (-entry[0], entry[1]))
        return [name for value, name in ordered[:EXPLAINED] if value > 0]


def best(rows: np.ndarray, scores: np.ndarray, count: int, above: float = -np.inf) -> np.ndarray:
    """Return the ``count`` rows of the highest scores, best first; ties by row; only scores ``above`` a bound."""
    if len(scores) > count:
        kept = scores >= np.partition(scores, -count)[-count]
        rows, scores = rows[kept], scores[kept]
    order = np.lexsort((rows, -scores))[:count]
    return rows[order[scores[order] > above]]


def start_chances(scores: np.ndarray) -> np.ndarray:
    """Return probabilities proportional to the squares of scores above the lowest; equal ones for equal scores."""
    above = np.square(scores - scores.min())
    return above / above.sum() if above.any() else np.full(len(scores), 1 / len(scores))
