"""A model of step time: matrix products at a share of the card's peak, everything else at its memory's bandwidth.

Arithmetic, not a measurement. The scripts print what it predicts beside what they find; where the two differ by much,
either the model or the code is wrong. ``python -m benchmarks.gpu.predictions`` prints its predictions for an H100.
"""

from __future__ import annotations

from dataclasses import dataclass

from platform_sdk.sizing.flops import attended_pairs, peak_of, training_operations
from platform_sdk.sizing.shape import ModelShape

PRODUCTS = 0.70
"""Share of the peak that large bfloat16 products reach on Hopper."""
ATTENTION = 0.40
"""Share that attention by flash attention 2 reaches, forward and backward."""
ELEMENTWISE_HIDDEN, ELEMENTWISE_FEED_FORWARD = 28, 8
"""Numbers that eager element-wise kernels read and write for each token of a layer, in multiples of its sizes: norms,
residuals, rotations and casts; activation, gate and casts."""
BANDWIDTHS = {"H100": 3.35e12, "H200": 4.8e12, "A100": 2.0e12, "L40S": 0.86e12}


@dataclass(frozen=True)
class Card:
    """Operations per second in bfloat16, and bytes per second of memory."""

    peak: float
    bandwidth: float


@dataclass(frozen=True)
class StepTime:
    """Seconds of a training step, by what they go into."""

    products: float
    attention: float
    elementwise: float
    weights: float

    @property
    def total(self) -> float:
        return self.products + self.attention + self.elementwise + self.weights


def card_of(name: str) -> Card | None:
    """Return a card by its name, or None for one that is not known."""
    peak = peak_of(name)
    bandwidth = next((value for card, value in BANDWIDTHS.items() if card in name), None)
    return None if peak is None or bandwidth is None else Card(peak, bandwidth)


def step_time(
    shape: ModelShape, card: Card, *, tokens: int, learned: int, length: int, micro_batch: int, recomputed: bool = False
) -> StepTime:
    """Predict a step of ``tokens`` tokens in sequences of ``length``, with float32 weights under autocast.

    Args:
        learned: tokens whose log-probabilities are computed, at 8 operations a parameter: the products are made again.
        micro_batch: tokens worked on at once; weights are cast, and gradients summed, once for each.
        recomputed: True under gradient checkpointing, where the forward pass is computed twice.
    """
    lengths = [length] * (tokens // length)
    operations = training_operations(shape, tokens, learned, attended_pairs(lengths, lengths))
    again = 4 / 3 if recomputed else 1.0
    numbers = ELEMENTWISE_HIDDEN * shape.hidden + ELEMENTWISE_FEED_FORWARD * shape.feed_forward
    rounds = max(1, tokens // micro_batch)
    # Adam reads and writes weight, two moments and the gradient; a cast reads 4 bytes and writes 2, forward and back.
    moved = shape.parameters * (28 + rounds * (2 * 6 + 8))
    return StepTime(
        products=(again * operations.body + 8 / 6 * operations.head) / (PRODUCTS * card.peak),
        attention=again * operations.attention / (ATTENTION * card.peak),
        elementwise=again * 3 * 4 * numbers * shape.layers * tokens / card.bandwidth,
        weights=moved / card.bandwidth,
    )


def predicted_mfu(shape: ModelShape, card: Card, **step: int | bool) -> float:
    """Return the share of the peak that the body's operations are predicted to make."""
    tokens = int(step["tokens"])
    return 6 * shape.body * tokens / (step_time(shape, card, **step).total * card.peak)  # type: ignore[arg-type]
