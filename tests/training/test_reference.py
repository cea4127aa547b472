"""The reference is the policy as it was when training began, whatever training has made of it since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from platform_sdk.config.training import LoraSpec, TrainSpec
from platform_sdk.training.batches import Batch, MicroBatch, pack, shared_step
from platform_sdk.training.examples import Example
from platform_sdk.training.policy import agent_logprobs, load_policy
from platform_sdk.training.reference import reference_for


def batch_of(dialogues: list[Example]) -> Batch:
    return pack(dialogues[:4], MicroBatch((0, 1, 2, 3)), shared_step(dialogues[:4], 1, 1000))


def disturb(policy: Any) -> None:
    """Change the weights at one stroke, as training does."""
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter))


@pytest.mark.parametrize("kind", ["full", "new adapter", "adapter trained on"])
def test_reference_keeps_the_initial_policy_while_the_policy_trains(
    tiny_model: Path, dialogues: list[Example], tmp_path: Path, kind: str
) -> None:
    torch.manual_seed(0)
    spec = TrainSpec(device="cpu", lora=None if kind == "full" else LoraSpec(rank=2, dropout=0.5))
    model = tiny_model
    if kind == "adapter trained on":
        earlier = load_policy(tiny_model, spec, attention="packed")
        disturb(earlier)
        earlier.save_pretrained(tmp_path)
        model = tmp_path
    batch = batch_of(dialogues)
    policy = load_policy(model, spec, attention="packed")
    reference = reference_for(model, policy, spec, "cpu")
    with torch.no_grad():
        start = agent_logprobs(policy.eval(), batch)
    policy.train()
    assert torch.equal(reference.logprobs(batch), start)

    disturb(policy)
    with torch.no_grad():
        moved = agent_logprobs(policy.eval(), batch)
    policy.train()
    assert (moved - start).abs().max() > 0.1
    found = reference.logprobs(batch)
    assert torch.equal(found, start)
    assert not found.requires_grad
    assert policy.training
    with torch.no_grad():
        assert torch.equal(agent_logprobs(policy.eval(), batch), moved)  # and it is left as training made it
    assert all(p.requires_grad == ("lora_" in name or kind == "full") for name, p in policy.named_parameters())


def test_bfloat16_reference_equals_the_policy_bitwise(tiny_model: Path, dialogues: list[Example]) -> None:
    spec = TrainSpec(device="cpu", precision="bfloat16")
    policy = load_policy(tiny_model, spec, attention="packed")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = agent_logprobs(policy.eval(), batch_of(dialogues))
    assert torch.equal(reference_for(tiny_model, policy, spec, "cpu").logprobs(batch_of(dialogues)), expected)
