"""Predictions of the model of step time for an H100: seconds of a training step, where they go, and the MFU.

python -m benchmarks.gpu.predictions
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu.harness import MODELS
from benchmarks.gpu.model import card_of, predicted_mfu, step_time
from benchmarks.gpu.sft import LENGTH, MICRO_BATCH, STEP
from platform_sdk.sizing.shape import shape_of


def main() -> None:
    card = card_of("NVIDIA H100 80GB HBM3")
    assert card is not None
    print(f"{'model':6}{'seconds':>9}{'products':>10}{'attention':>11}{'other':>7}{'weights':>9}{'MFU':>7}")
    for name in ("0.6B", "3B", "7B/8"):
        shape = shape_of(MODELS[name])
        step: Any = {"tokens": STEP, "learned": STEP // 2, "length": LENGTH, "micro_batch": MICRO_BATCH}
        time = step_time(shape, card, **step)
        shares = [part / time.total for part in (time.products, time.attention, time.elementwise, time.weights)]
        print(f"{name:6}{time.total:9.2f}" + "".join(f"{share:{w}.0%}" for share, w in zip(shares, (10, 11, 7, 9),
              strict=True)) + f"{predicted_mfu(shape, card, **step):7.0%}")  # fmt: skip


if __name__ == "__main__":
    main()
