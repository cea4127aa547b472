"""Demands of a training on the machine, checked before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import MistralConfig, Phi3Config

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import TrainSpec
from platform_sdk.sampling.models import load_model
from platform_sdk.training.arguments import check_memory, training_arguments
from platform_sdk.training.attention import PACKED
from platform_sdk.training.batches import pack, shared_step
from platform_sdk.training.examples import Example
from platform_sdk.training.policy import agent_logprobs
from platform_sdk.training.run import train
from tests.sampling.tiny_models import save_model_of


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


LONG_ROPE = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": 64,
    "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
}  # fmt: skip


def test_longrope_is_trained_within_its_original_window_only(tmp_path: Path) -> None:
    config = partial(Phi3Config, rope_parameters=LONG_ROPE, original_max_position_embeddings=64)
    path = save_model_of(config, tmp_path / "model")
    examples = [example_of(length) for length in (20, 64, 65)]
    for spec in (TrainSpec(device="cpu"), TrainSpec(device="cpu", max_length=65)):
        with pytest.raises(UserError, match=r"\(longrope\) change beyond 64 tokens.*; set max_length to 64"):
            train(spec, examples, path, tmp_path / "out", seed=0, checkpoints=tmp_path / "checkpoints")
    # The reason: packed with an example beyond the window, a short example gets other log-probabilities.
    model = load_model(path, attention=PACKED)
    alone, within, beyond = (logprobs_of_first(model, examples, others) for others in ((0,), (0, 1), (0, 2)))
    torch.testing.assert_close(within, alone, atol=1e-5, rtol=0)
    assert (beyond - alone).abs().max() > 1e-3


def test_an_example_beyond_a_sliding_window_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = save_model_of(partial(MistralConfig, sliding_window=64), tmp_path / "model")
    fits, exceeds = [example_of(64)], [example_of(65)]
    packed, sdpa = TrainSpec(device="cpu"), TrainSpec(device="cpu", attention="sdpa")
    train(packed, fits, path, tmp_path / "out", seed=0, checkpoints=tmp_path / "a")
    with pytest.raises(UserError, match="65 tokens exceeds .* 64 tokens; set attention to sdpa, or max_length"):
        train(packed, exceeds, path, tmp_path / "other", seed=0, checkpoints=tmp_path / "b")
    train(sdpa, exceeds, path, tmp_path / "other", seed=0, checkpoints=tmp_path / "c")


def example_of(length: int) -> Example:
    return Example(
        id=str(length), token_ids=tuple(range(5, 5 + length)), agent_mask=(0,) + (1,) * (length - 1), logprobs=(),
        weights="", advantages=(),
    )  # fmt: skip


def logprobs_of_first(model: Any, examples: Sequence[Example], packed: Sequence[int]) -> torch.Tensor:
    chosen = [examples[number] for number in packed]
    step = shared_step(chosen, 1, 1000)
    [micro] = step.shares[0]
    batch = pack(chosen, micro, step)
    first = micro.examples.index(0)
    with torch.no_grad():
        return agent_logprobs(model, batch)[batch.example == first]


def test_gradient_checkpointing_is_known_to_any_admitted_transformers(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    args = training_arguments(TrainSpec(gradient_checkpointing=True, device="cpu"), tmp_path, 0, "cpu")
    assert args.gradient_checkpointing
    assert args.gradient_checkpointing_kwargs == {"use_reentrant": False}
    assert not [warning for warning in recwarn if "checkpointing" in str(warning.message)]
