"""Recall@k of gold passages, by title."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def recall_at_k(retrieved_titles: Sequence[str], gold_titles: Collection[str], k: int) -> float:
    """Return the share of the distinct gold titles among the first ``k`` retrieved passages.

    Raises:
        ValueError: ``k`` is below 1, or there is no gold title, so that a share has no meaning.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    gold = set(gold_titles)
    if not gold:
        raise ValueError("recall needs at least one gold title")
    return len(gold.intersection(retrieved_titles[:k])) / len(gold)
