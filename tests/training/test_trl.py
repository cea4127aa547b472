"""The same samples in the same settings: GRPO as TRL trains it is GRPO as it is trained here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from platform_sdk.config.online import OnlineSpec

pytest.importorskip("trl", reason="trl is not installed; pip install -e '.[dev]'")

from benchmarks.grpo import make_model, make_updates, run_hopforge, run_trl


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_the_loss_trajectories_are_equal(tmp_path: Path, normalization: str) -> None:
    """Eight optimiser steps, two on each update's samples, large enough to be clipped; one group's rewards are equal.

    TRL's weighting of the KL term by the ratio, younger than the method, is off. Adam's epsilon is well above the
    gradients' rounding errors, which it would otherwise scale up to whole steps.
    """
    torch.set_num_threads(1)
    make_model(tmp_path / "model", 60, 32, 2)
    updates = make_updates(4, 3, 4, 60, (3, 12), (2, 9))
    spec = OnlineSpec(
        learning_rate=1e-2, minimum_learning_rate=1e-3, warmup_ratio=0.0, updates=4, iterations=2, clip=0.2, beta=0.04,
        kl="k3", normalization=normalization, epsilon=1e-4, device="cpu", micro_batch_tokens=60,
    )  # fmt: skip
    ours = run_hopforge(tmp_path / "model", updates, spec, tmp_path / "hopforge")
    theirs = run_trl(tmp_path / "model", updates, spec, tmp_path / "trl", parts=2)
    assert len(ours.losses) == 8
    assert max(map(abs, ours.losses)) > 1e-2
    assert ours.losses == pytest.approx(theirs.losses, abs=1e-5)
