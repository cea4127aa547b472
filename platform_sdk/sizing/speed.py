"""Floating-point operations of a training step, and the share of a card's peak that they make (MFU).

A token costs two operations for each parameter that it is multiplied with, and twice that again in the backward pass:
6·N. The body's parameters, the output matrix and attention are counted apart, since they touch different tokens: the
output matrix only tokens that are learned, attention pairs of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from platform_sdk.sizing.shape import ModelShape

PEAKS = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12}
"""Dense bfloat16 operations per second of cards, by what their names contain; the first that fits."""


@dataclass(frozen=True)
class Operations:
    """Floating-point operations of a step's forward and backward pass, over all processes."""

    body: float
    head: float
    attention: float

    @property
    def total(self) -> float:
        return self.body + self.head + self.attention


def training_operations(
    shape: ModelShape, tokens: int, learned_tokens: int, pairs: int, *, frozen: bool = False
) -> Operations:
    """Return the operations of a training step.

    Args:
        tokens: that the body reads.
        learned_tokens: whose log-probabilities are computed.
        pairs: of a token and one that it attends to (see ``attended_pairs``).
        frozen: True under an adapter, where no gradient of the weights is computed.
    """
    factor = 4 if frozen else 6
    # Scores and their sum of values: each a product of head_size numbers; both gradients are needed in any case.
    of_pair = 4 * shape.layers * shape.heads * shape.head_size
    return Operations(
        body=factor * shape.body * tokens,
        head=factor * shape.matrix * learned_tokens,
        attention=3 * of_pair * pairs,
    )


def attended_pairs(lengths: Iterable[int], key_lengths: Iterable[int]) -> int:
    """Return the pairs of causal attention: of each segment's tokens with those up to them, and before the segment."""
    return sum(
        length * (keys - length) + length * (length + 1) // 2 for length, keys in zip(lengths, key_lengths, strict=True)
    )


def peak_of(card: str) -> float | None:
    """Return a card's peak in bfloat16, or None for a card that is not known."""
    return next((peak for name, peak in PEAKS.items() if all(word in card for word in name.split())), None)


def utilisation(operations: Operations, seconds: float, peak: float) -> dict[str, float]:
    """Return the shares of ``peak`` operations per second that a step makes: the body's (MFU), and the others' apart.

    What is computed a second time under gradient checkpointing does not count.
    """
    of_peak = seconds * peak
    return {
        "mfu": operations.body / of_peak,
        "mfu_head": operations.head / of_peak,
        "mfu_attention": operations.attention / of_peak,
    }
