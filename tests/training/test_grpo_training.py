"""GRPO through the trainer: neither micro-batches nor processes change what a step does."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from platform_sdk.config.online import OnlineSpec
from platform_sdk.training.examples import Example
from platform_sdk.training.run import StepFigures
from tests.training.grpo_run import run

ROOT = Path(__file__).parents[2]
SPEC = OnlineSpec(
    updates=1, learning_rate=1e-2, minimum_learning_rate=1e-3, warmup_ratio=0.0, beta=0.1, kl="k2", epsilon=1e-4,
    device="cpu", micro_batch_tokens=1000,
)  # fmt: skip


@pytest.fixture(scope="module")
def judged(dialogues: list[Example]) -> list[Example]:
    """Give examples advantages and a policy that gave every token 1/e: the ratios are clipped on both sides."""
    return [
        dataclasses.replace(one, advantages=tuple(m * (1.5 - number % 4) for m in one.agent_mask))
        for number, one in enumerate(dialogues)
    ]


def assert_same(one: list[StepFigures], other: list[StepFigures], tolerance: float) -> None:
    assert len(one) == len(other) == 3
    assert any(0 < figures.statistics["clip_fraction"] < 1 for figures in one)
    for mine, theirs in zip(one, other, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=tolerance, abs=1e-5)
        assert mine.grad_norm == pytest.approx(theirs.grad_norm, rel=10 * tolerance)
        assert mine.statistics == pytest.approx(theirs.statistics, rel=tolerance, abs=1e-5)


def assert_same_weights(one: Path, other: Path, name: str = "model") -> None:
    found = load_file(one / f"{name}.safetensors")
    for key, tensor in load_file(other / f"{name}.safetensors").items():
        torch.testing.assert_close(found[key], tensor, atol=3e-4, rtol=3e-4, msg=key)


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_the_division_into_micro_batches_changes_nothing(
    tiny_model: Path, judged: list[Example], tmp_path: Path, normalization: str
) -> None:
    spec = SPEC.model_copy(update={"normalization": normalization})
    whole = run(tiny_model, judged, spec, tmp_path / "whole")
    assert whole[-1].statistics["kl"] > whole[0].statistics["kl"] == 0
    parts = run(tiny_model, judged, spec.model_copy(update={"micro_batch_tokens": 25}), tmp_path / "parts")
    assert_same(parts, whole, 2e-4)
    assert_same_weights(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"normalization": "sequence"}, id="normalization"),
        pytest.param({"deepspeed": "zero2"}, id="deepspeed"),
    ],
)
@pytest.mark.slow  # test_steps.py shows the same of likelihood
def test_training_with_two_processes_equals_one_process(
    tiny_model: Path, judged: list[Example], tmp_path: Path, change: dict[str, Any]
) -> None:
    """24 examples in steps of nine: shares of unequal length, and a last step of six."""
    if "deepspeed" in change:
        pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    spec = SPEC.model_copy(update={**change, "micro_batch_tokens": 30})
    alone = run(tiny_model, judged, spec.model_copy(update={"deepspeed": None}), tmp_path / "alone")
    file = tmp_path / "examples.json"
    file.write_text(json.dumps([dataclasses.astuple(one) for one in judged]))
    finished = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(ROOT / "tests/training/grpo_run.py"), str(tiny_model), str(tmp_path / "two"), str(file),
         spec.model_dump_json()],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr[-3000:]
    curve = json.loads((tmp_path / "two" / "curve.json").read_text())
    assert_same([StepFigures.model_validate(figures) for figures in curve], alone, 5e-4)
    assert_same_weights(tmp_path / "two", tmp_path / "alone")
