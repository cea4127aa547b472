"""Rows that were fetched in any order are compared in their own order, block by block."""

from __future__ import annotations

import numpy as np
import pytest

from platform_sdk.retrieval import vector_cache
from platform_sdk.retrieval.vector_cache import VectorCache


@pytest.mark.parametrize("limit", [1, 5, 23, 40])
def test_nearest_rows_are_those_of_a_full_comparison_whatever_was_fetched_before(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_cache, "_BLOCK", 7)
    random = np.random.default_rng(limit)
    matrix, queries = (random.standard_normal((count, 8)).astype(np.float32) for count in (40, 6))
    fetched: list[int] = []

    def fetch(rows: list[int]) -> np.ndarray:
        fetched.extend(rows)
        return matrix[rows]

    cache = VectorCache(len(matrix), fetch)  # type: ignore[arg-type]
    cache.vectors([30, 2, 17])
    found = cache.nearest(queries, limit)
    expected = np.argsort(-(queries @ matrix.T), axis=1)[:, :limit]
    assert [sorted(rows.tolist()) for rows in found] == np.sort(expected, axis=1).tolist()
    assert np.array_equal(cache.vectors([30, 2, 17, 30]), matrix[[30, 2, 17, 30]])
    cache.nearest(queries, limit)
    assert sorted(fetched) == list(range(40))
