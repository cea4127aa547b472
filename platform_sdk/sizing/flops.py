"""Floating-point operations of a training step, and model FLOPs utilisation (MFU).

A token costs two operations per parameter in the forward pass and four in the backward pass: 6·N. The layers, the
output matrix and attention are counted separately: layers process all tokens, the output matrix only learned tokens,
and attention pairs of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from platform_sdk.sizing.shape import ModelShape

PEAKS = {
    "H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12, "GH200": 989e12, "A100": 312e12,
    "L40S": 362e12,
}  # fmt: skip
"""Peak dense bfloat16 operations per second by words of the GPU's name; the first match applies."""


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
        tokens: number of tokens that the layers process.
        learned_tokens: number of tokens whose log-probabilities are computed.
        pairs: number of pairs of a token and a token that it attends to (see ``attended_pairs``).
        frozen: True with an adapter, which needs no gradient of the weights.
    """
    factor = 4 if frozen else 6
    # Attention scores and weighted values: products of head_size numbers; their gradients are always needed.
    of_pair = 4 * shape.layers * shape.heads * shape.head_size
    return Operations(
        body=factor * shape.body * tokens,
        head=factor * shape.matrix * learned_tokens,
        attention=3 * of_pair * pairs,
    )


def attended_pairs(lengths: Iterable[int], key_lengths: Iterable[int]) -> int:
    """Return the number of pairs in causal attention: each token of a segment with all keys up to it."""
    return sum(
        length * (keys - length) + length * (length + 1) // 2 for length, keys in zip(lengths, key_lengths, strict=True)
    )


def peak_of(card: str) -> float | None:
    """Return a GPU's peak in bfloat16, or None for an unknown GPU."""
    words = set(re.split(r"[\s-]+", card))
    return next((peak for name, peak in PEAKS.items() if words.issuperset(name.split())), None)


def utilisation(operations: Operations, seconds: float, peak: float) -> dict[str, float]:
    """Return the step's shares of ``peak`` operations per second: layers (MFU), output matrix and attention.

    Recomputation under gradient checkpointing is not counted.
    """
    of_peak = seconds * peak
    return {
        "mfu": operations.body / of_peak,
        "mfu_head": operations.head / of_peak,
        "mfu_attention": operations.attention / of_peak,
    }
