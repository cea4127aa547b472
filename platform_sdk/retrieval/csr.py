"""Rows of sparse matrices in CSR form, as numpy arrays."""

from __future__ import annotations

import numpy as np


def row_entries(indptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the entries of ``rows`` in a CSR matrix in order, and the place of each in ``rows``."""
    lengths = indptr[rows + 1] - indptr[rows]
    ends = np.cumsum(lengths)
    which = np.repeat(np.arange(len(rows)), lengths)
    return np.arange(len(which)) + np.repeat(indptr[rows] - (ends - lengths), lengths), which
