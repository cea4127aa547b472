"""Bootstrap intervals of means over questions, and the paired comparison of two runs.

Percentile bootstrap: questions are drawn with replacement, and the interval spans the middle ``level`` of
the resampled means. Equal input and seed give equal output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES, LEVEL = 10_000, 0.95
_DRAWS_AT_ONCE = 4_000_000  # question draws held in memory at a time: 32 MB


class PairedDifference(NamedTuple):
    """The mean of ``a - b`` over shared questions, its interval and p value.

    ``p_value`` is two-sided: twice the share of resampled differences on the far side of zero (at most 1).
    """

    difference: float
    low: float
    high: float
    p_value: float


def bootstrap_interval(
    values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES, level: float = LEVEL
) -> tuple[float, float]:
    """Return the interval ``(low, high)`` of the mean of ``values``.

    Raises:
        ValueError: ``values`` is empty, ``resamples`` below 1, or ``level`` not within (0, 1).
    """
    return bootstrap_intervals({"": values}, seed=seed, resamples=resamples, level=level)[""]


def bootstrap_intervals(
    columns: Mapping[str, Sequence[float]], *, seed: int = 0, resamples: int = RESAMPLES, level: float = LEVEL
) -> dict[str, tuple[float, float]]:
    """Return :func:`bootstrap_interval` of each column; all columns are resampled together, row by row."""
    matrix = np.column_stack([np.asarray(values, dtype=np.float64) for values in columns.values()])
    low, high = _span(_resampled_means(matrix, seed, resamples), level)
    return {name: (float(low[i]), float(high[i])) for i, name in enumerate(columns)}


def paired_bootstrap(a: Sequence[float], b: Sequence[float]) -> PairedDifference:
    """Compare two runs on the same questions; ``a[i]`` and ``b[i]`` are the scores of question ``i``.

    Raises:
        ValueError: the two have different lengths, or are empty.
    """
    if len(a) != len(b):
        raise ValueError(f"a paired comparison needs the same questions, not {len(a)} and {len(b)}")
    differences = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    means = _resampled_means(differences[:, None], 0, RESAMPLES)
    low, high = _span(means, LEVEL)
    tail = min(np.mean(means <= 0), np.mean(means >= 0))
    return PairedDifference(float(differences.mean()), float(low[0]), float(high[0]), min(1.0, 2 * float(tail)))


def _resampled_means(matrix: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    """Return the column means of ``resamples`` bootstrap samples of the rows; shape (resamples, columns)."""
    if matrix.shape[0] == 0:
        raise ValueError("a bootstrap interval needs at least one value")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, not {resamples}")
    return np.concatenate([counts @ matrix for counts in _row_counts(len(matrix), seed, resamples)]) / len(matrix)


def _row_counts(rows: int, seed: int, resamples: int) -> Iterator[NDArray[np.float64]]:
    """Yield the number of draws of each row in each resample, in chunks of shape (resamples, rows)."""
    generator = np.random.default_rng(seed)
    step = max(1, _DRAWS_AT_ONCE // rows)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        draws = generator.integers(rows, size=(size, rows))
        draws += np.arange(size)[:, None] * rows
        yield np.bincount(draws.ravel(), minlength=size * rows).reshape(size, rows).astype(np.float64)


def _span(means: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Return the ends of the central interval of each column; shape (2, columns)."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    return np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
