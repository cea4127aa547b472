"""Evidence of a sub-answer: all pieces with similarity above τ, else the most similar piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from platform_sdk.retrieval.encoders import Encoder

DIGITS = 4
"""Similarities are rounded, so that records do not depend on a CPU's last bits."""


@dataclass(frozen=True)
class Comparison:
    """A sub-answer to compare with pieces of evidence."""

    sentence: str
    evidence: tuple[str, ...]


def select(similarities: Sequence[float], tau: float) -> tuple[int, ...]:
    """Return the indices with similarity above τ, or the best one if there is none.

    Raises:
        ValueError: there is no evidence.
    """
    if not similarities:
        raise ValueError("there is no evidence to select from")
    above = tuple(place for place, value in enumerate(similarities) if value > tau)
    return above or (max(range(len(similarities)), key=lambda place: similarities[place]),)


@dataclass(frozen=True)
class Similarity:
    """Cosine similarities by an encoder; equal texts of a batch are encoded once."""

    encoder: Encoder

    def __call__(self, items: Sequence[Comparison]) -> list[tuple[float, ...]]:
        """Return the similarities of each item's sentence to its evidence."""
        texts = list(dict.fromkeys(text for item in items for text in (item.sentence, *item.evidence)))
        vectors = dict(zip(texts, self.encoder.encode(texts, kind="passage"), strict=True))
        return [
            tuple(round(float(vectors[item.sentence] @ vectors[text]), DIGITS) for text in item.evidence)
            for item in items
        ]
