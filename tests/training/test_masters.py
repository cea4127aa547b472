"""Limits of bfloat16: small updates survive from one training to the next, and frozen weights lose nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from platform_sdk.config.training import LoraSpec, TrainSpec
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Rollout
from platform_sdk.sampling.models import load_model
from platform_sdk.training.batches import pack, shared_step
from platform_sdk.training.examples import Example
from platform_sdk.training.launch import TrainStep, launch_training
from platform_sdk.training.policy import agent_logprobs, load_policy
from tests.training.test_steps import as_rollout

STEP = 2.0**-10  # of Adam's first update; below 1 bfloat16's numbers are 2**-8 apart, so that 1 - STEP is rounded to 1
ITERATIONS = 4


def test_bfloat16_rounds_one_minus_a_step_to_one() -> None:
    rounded = torch.tensor([1 - STEP, 1 - 2 * STEP, 1 - 3 * STEP, 1 - 4 * STEP]).bfloat16().tolist()
    assert rounded == [1, 1, 1 - 2.0**-8, 1 - 2.0**-8]  # halfway is rounded to the even one


@pytest.mark.parametrize("deepspeed", [None, "zero2", "zero3"])
def test_updates_below_bfloat16s_spacing_add_up_over_iterations(
    tiny_model: Path, dialogues: list[Example], tmp_path: Path, deepspeed: str | None
) -> None:
    """Norm weights begin at 1, and Adam's first step moves each by the learning rate."""
    if deepspeed is not None:
        pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    selected = tmp_path / "selected.jsonl"
    write_jsonl(selected, Rollout, [as_rollout(0, dialogues[0], dialogues[1])])
    spec = TrainSpec(
        learning_rate=STEP, minimum_learning_rate=STEP, max_grad_norm=0, batch_size=2, device="cpu",
        precision="bfloat16", deepspeed=deepspeed, processes=None if deepspeed is None else 2,
    )  # fmt: skip
    model = str(tiny_model)
    for iteration in range(ITERATIONS):
        step = TrainStep(
            run_dir=tmp_path, phase=f"iteration-{iteration}", model=model, selected=selected, seed=0, spec=spec
        )
        model = launch_training(step).model
    name = "model.norm.weight"
    moved = 1 - load_file(Path(model) / "model.safetensors")[name].float()
    assert moved.dtype == torch.float32
    steady = moved.abs() > (ITERATIONS - 0.5) * STEP  # gradients of one sign throughout
    assert steady.sum() >= len(moved) / 2
    torch.testing.assert_close(
        moved[steady].abs(), torch.full_like(moved[steady], ITERATIONS * STEP), atol=1e-5, rtol=0
    )
    assert load_model(model, dtype="bfloat16").dtype == torch.bfloat16, "what samples in bfloat16 takes a rounded copy"


@pytest.mark.parametrize(("deepspeed", "dtype"), [(None, torch.float32), ("zero2", torch.bfloat16)])
def test_only_deepspeed_begins_with_rounded_weights(tiny_model: Path, deepspeed: str, dtype: torch.dtype) -> None:
    spec = TrainSpec(deepspeed=deepspeed, precision="bfloat16")  # type: ignore[arg-type]
    assert {p.dtype for p in load_policy(tiny_model, spec, attention="packed").parameters()} == {dtype}


def test_a_bfloat16_base_under_an_adapter_gives_the_float32_bases_results(
    tiny_model: Path, dialogues: list[Example]
) -> None:
    lora = LoraSpec(rank=2)
    step = shared_step(dialogues[:4], 1, 1000)
    batch = pack(dialogues[:4], step.shares[0][0], step)
    found = []
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        policy = load_policy(tiny_model, TrainSpec(lora=lora, precision=precision), attention="packed")
        with torch.no_grad():
            for name, parameter in policy.named_parameters():
                if "lora_B" in name:
                    parameter.normal_()
        with torch.autocast("cpu", torch.bfloat16):
            logprobs = agent_logprobs(policy, batch)
        logprobs.sum().backward()
        frozen = {p.dtype for n, p in policy.named_parameters() if "base_layer" in n}
        assert frozen == {getattr(torch, precision)}
        trained = [p for p in policy.parameters() if p.requires_grad]
        assert {p.dtype for p in trained} == {torch.float32}
        found.append([logprobs, *(p.grad for p in trained)])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
