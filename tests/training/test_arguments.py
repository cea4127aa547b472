"""Demands of a training on the machine, checked before it starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import TrainSpec
from platform_sdk.training.arguments import check_memory, training_arguments


@pytest.mark.parametrize(("memory", "fits"), [(1_000_000, True), (40_000, False)])
def test_a_training_that_exceeds_its_gpu_is_refused_before_the_model_is_loaded(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, memory: int, fits: bool
) -> None:
    """The tiny model has 4,560 parameters: 72,960 bytes of weights, gradients and optimiser."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, memory))
    args: Any = SimpleNamespace(device=torch.device("cuda"), world_size=1)
    if fits:
        check_memory(TrainSpec(), tiny_model, args)
    else:
        with pytest.raises(UserError, match="on each of 1 GPUs before any activation.*; set lora to train an adapter"):
            check_memory(TrainSpec(), tiny_model, args)


def test_gradient_checkpointing_is_known_to_any_admitted_transformers(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    args = training_arguments(TrainSpec(gradient_checkpointing=True, device="cpu"), tmp_path, 0, "cpu")
    assert args.gradient_checkpointing
    assert args.gradient_checkpointing_kwargs == {"use_reentrant": False}
    assert not [warning for warning in recwarn if "checkpointing" in str(warning.message)]
