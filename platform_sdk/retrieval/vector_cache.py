"""In-memory cache of a collection's vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

DIGITS = 6  # digits of a similarity, so that texts equal up to float noise tie
_BLOCK = 4096  # rows compared at once: they stay in the processor's cache


class VectorCache:
    """Growing matrix of the requested rows, so that repeated rows are fetched once.

    Args:
        rows: Number of rows of the collection.
        fetch: Returns the vectors of distinct rows.
    """

    def __init__(self, rows: int, fetch: Callable[[Sequence[int]], np.ndarray]) -> None:
        self._fetch = fetch
        self._places = np.full(rows, -1, dtype=np.int32)
        self._matrix = np.empty((0, 0), dtype=np.float32)
        self._known = 0
        self._ordered = False

    def vectors(self, rows: npt.ArrayLike) -> np.ndarray:
        """Return the vectors of ``rows``, of shape (len(rows), dimension)."""
        places = self._locate(rows)
        found: np.ndarray = self._matrix[places]
        return found

    def fetch_all(self) -> None:
        """Fetch all rows, and sort the matrix by row."""
        if self._ordered:
            return
        for start in range(0, len(self._places), _BLOCK):
            self._locate(np.arange(start, min(start + _BLOCK, len(self._places))))
        if not np.array_equal(self._places, np.arange(self._known)):
            self._matrix = self._matrix[self._places]
            self._places = np.arange(self._known, dtype=np.int32)
        self._ordered = True

    def nearest(self, queries: np.ndarray, limit: int) -> list[np.ndarray]:
        """Fetch all rows and return the ``limit`` rows of highest cosine for each query, up to the last bits.

        The matrix product is the fastest comparison of all rows, but its last bits depend on the other queries.
        """
        self.fetch_all()
        rows, scores = [np.empty(0, dtype=np.int64)] * len(queries), [np.empty(0, dtype=np.float32)] * len(queries)
        for start in range(0, self._known, _BLOCK):
            products = queries.astype(np.float32) @ self._matrix[start : min(start + _BLOCK, self._known)].T
            floors = np.array([own.min() if len(own) == limit else -np.inf for own in scores], dtype=np.float32)
            owners, places = np.nonzero(products > floors[:, None])
            for owner, new in enumerate(np.split(places, np.searchsorted(owners, np.arange(1, len(queries))))):
                if not len(new):
                    continue
                own = np.concatenate([scores[owner], products[owner, new]])
                kept = np.argpartition(-own, limit - 1)[:limit] if len(own) > limit else np.arange(len(own))
                rows[owner], scores[owner] = np.concatenate([rows[owner], start + new])[kept], own[kept]
        return rows

    def similarities(self, query: np.ndarray, rows: npt.ArrayLike) -> np.ndarray:
        """Return the cosine similarity of each row to a unit vector, independent of other requested rows."""
        places = self._locate(rows)
        scores = np.empty(len(places), dtype=np.float64)
        for start in range(0, len(places), _BLOCK):
            part = slice(start, start + _BLOCK)
            # No matrix product: this sums each row separately.
            scores[part] = np.einsum("ij,j->i", self._matrix[places[part]], query.astype(np.float32))
        return np.round(scores, DIGITS)

    def _locate(self, rows: npt.ArrayLike) -> np.ndarray:
        wanted = np.asarray(rows, dtype=np.int64)
        new = np.unique(wanted[self._places[wanted] < 0])
        if len(new):
            vectors = self._fetch(new.tolist())
            end = self._known + len(new)
            if end > len(self._matrix):
                grown = np.empty((max(end, 2 * len(self._matrix)), vectors.shape[1]), dtype=np.float32)
                grown[: self._known] = self._matrix[: self._known].reshape(self._known, vectors.shape[1])
                self._matrix = grown
            self._matrix[self._known : end] = vectors
            self._places[new] = np.arange(self._known, end)
            self._known = end
        return self._places[wanted]
