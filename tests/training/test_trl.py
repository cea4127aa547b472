"""The same samples in the same settings: GRPO as TRL trains it is GRPO as it is trained here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from platform_sdk.config.online import OnlineSpec

pytest.importorskip("trl", reason="trl is not installed; pip install -e '.[dev]'")

from benchmarks.grpo import END, Group, make_model, make_updates, run_hopforge, run_trl

DR_GRPO = {"normalization": "constant", "normalization_length": 16, "credit": {"scale": "none"}}


def with_style_and_ends(group: Group, ends: bool) -> Group:
    """A second reward from the completions; the odd ones end by themselves if asked for, all others are truncated."""
    completions = tuple((*c[:-1], END) if ends and n % 2 else c for n, c in enumerate(group.completions))
    return replace(group, completions=completions, style=tuple(float(sum(c) % 3) for c in group.completions))


@pytest.mark.parametrize(
    ("change", "questions", "temperature"),
    [
        pytest.param({"normalization": "token"}, 3, 1.0, id="token"),
        pytest.param({"normalization": "sequence"}, 3, 1.0, id="sequence"),
        pytest.param(DR_GRPO, 3, 1.0, id="Dr. GRPO"),
        pytest.param({"credit": {"scale": "batch"}}, 3, 0.7, id="batch scale, scaled logits"),
        pytest.param({**DR_GRPO, "mini_batches": 2, "updates": 2}, 4, 0.7, id="mini-batches, scaled logits"),
        pytest.param({"clip": {"type": "range", "low": 0.1, "high": 0.3}}, 3, 1.0, id="clip-higher"),
        pytest.param({"clip": {"type": "cispo", "maximum": 1.1}}, 3, 1.0, id="CISPO"),
        pytest.param(
            {"clip": {"type": "gspo", "low": 0.01, "high": 0.02}, "normalization": "sequence"}, 3, 1.0, id="GSPO"
        ),
        pytest.param({"credit": {"type": "gdpo", "weights": {"gain": 1.0, "style": 0.3}}}, 3, 1.0, id="GDPO"),
        pytest.param({"engine_correction": {"level": "token", "maximum": 1.5}}, 3, 1.0, id="TIS by token"),
        pytest.param({"engine_correction": {"level": "sequence", "maximum": 3.0}}, 3, 1.0, id="TIS by sequence"),
        pytest.param({"mask_truncated": True}, 3, 1.0, id="masked, token"),
        pytest.param({"mask_truncated": True, "normalization": "sequence"}, 3, 1.0, id="masked, sequence"),
    ],
)
def test_the_loss_trajectories_are_equal(
    tmp_path: Path, change: dict[str, Any], questions: int, temperature: float
) -> None:
    """Eight optimiser steps, two on each sample, large enough to be clipped; one group's rewards are equal.

    TRL's weighting of the KL term by the ratio, younger than the method, is off. Adam's epsilon is well above the
    gradients' rounding errors, which it would otherwise scale up to whole steps.
    """
    torch.set_num_threads(1)
    make_model(tmp_path / "model", 60, 32, 2)
    settings = {
        "learning_rate": 1e-2, "minimum_learning_rate": 1e-3, "warmup_ratio": 0.0, "updates": 4, "iterations": 2,
        "clip": 0.2, "beta": 0.04, "kl": "k3", "epsilon": 1e-4, "device": "cpu", "micro_batch_tokens": 60,
    }  # fmt: skip
    spec = OnlineSpec.model_validate(settings | change)
    updates = [
        [with_style_and_ends(group, spec.mask_truncated) for group in update]
        for update in make_updates(spec.updates, questions, 4, 60, (3, 12), (2, 9))
    ]
    ours = run_hopforge(tmp_path / "model", updates, spec, tmp_path / "hopforge", temperature=temperature)
    theirs = run_trl(tmp_path / "model", updates, spec, tmp_path / "trl", parts=2, temperature=temperature)
    assert len(ours.losses) == 8
    assert max(map(abs, ours.losses)) > 1e-3
    assert ours.losses == pytest.approx(theirs.losses, abs=1e-6)
