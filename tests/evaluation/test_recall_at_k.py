"""Recall@k by hand."""

from __future__ import annotations

import pytest

from platform_sdk.evaluation.recall import recall_at_k


def test_recall_counts_distinct_gold_titles() -> None:
    retrieved = ["x", "a", "a", "b", "c"]
    assert recall_at_k(retrieved, ["a", "b"], 1) == 0.0
    assert recall_at_k(retrieved, ["a", "b"], 2) == 0.5
    assert recall_at_k(retrieved, ["a", "b", "a"], 4) == 1.0
    assert recall_at_k([], ["a"], 10) == 0.0


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="gold title"):
        recall_at_k(["a"], [], 1)
    with pytest.raises(ValueError, match="k must be"):
        recall_at_k(["a"], ["a"], 0)
