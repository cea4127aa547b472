"""A step's speed: the tokens it reads, and on a card that is known the share of the peak."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from platform_sdk.config.training import TrainSpec
from platform_sdk.sizing.shape import shape_of
from platform_sdk.training.batches import pack, shared_step
from platform_sdk.training.policy import load_policy
from platform_sdk.training.speed import StepSpeed
from tests.training.test_shared_prompts import MIXED


def test_tokens_per_second_and_the_share_of_the_peak_by_hand(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_policy(tiny_model, TrainSpec(), attention="packed")
    step = shared_step(MIXED, 1, 1000, share_prompts=True)
    batch = pack(MIXED, step.shares[0][0], step)
    tokens, learned = batch.input_ids.shape[1], len(batch.targets)
    on_cpu = StepSpeed(model, Accelerator(cpu=True))
    on_cpu.add(batch)
    assert on_cpu.figures(2.0) == {"tokens_per_second": tokens / 2}

    reduced = SimpleNamespace(
        device=torch.device("cpu"), num_processes=2, reduce=lambda counts, reduction: 2 * counts
    )  # fmt: skip
    monkeypatch.setattr("platform_sdk.training.speed.peak_of", lambda _: 1e6)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "card")
    monkeypatch.setattr(StepSpeed, "_on_gpu", lambda _: True)
    speed = StepSpeed(model, reduced)  # type: ignore[arg-type]
    speed.add(batch)
    speed.begin()
    speed.add(batch)
    figures = speed.figures(2.0)
    shape = shape_of(model.config.to_dict())
    assert figures["tokens_per_second"] == tokens
    assert figures["mfu"] == pytest.approx(6 * shape.body * 2 * tokens / (2.0 * 2e6))
    assert figures["mfu_head"] == pytest.approx(6 * 40 * 16 * 2 * learned / (2.0 * 2e6))
