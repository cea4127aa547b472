"""Packed examples are trained on exactly as if each stood alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import LoraSpec, TrainSpec
from platform_sdk.training.batches import MicroBatch, Step, pack
from platform_sdk.training.examples import Example
from platform_sdk.training.policy import agent_logprobs, load_policy

STEP = Step((), 1, 1)


def alone(model: torch.nn.Module, examples: list[Example]) -> torch.Tensor:
    """The definition: each dialogue by itself, all logits, log-softmax, the agent's tokens picked."""
    parts = []
    for example in examples:
        logits = model(input_ids=torch.tensor([example.token_ids])).logits[0]
        logprobs = torch.log_softmax(logits, dim=-1)
        parts += [logprobs[j - 1, example.token_ids[j]] for j, mine in enumerate(example.agent_mask) if mine]
    return torch.stack(parts)


@pytest.mark.parametrize("attention", ["packed", "sdpa", "eager"])
def test_packed_logprobs_and_gradients_equal_those_of_single_dialogues(
    tiny_model: Path, dialogues: list[Example], attention: str
) -> None:
    examples = dialogues[:6]
    reference = load_policy(tiny_model, TrainSpec(), attention="eager")
    expected = alone(reference, examples)
    expected.sum().backward()
    model = load_policy(tiny_model, TrainSpec(), attention=attention)
    found = agent_logprobs(model, pack(examples, MicroBatch(tuple(range(6))), STEP))
    found.sum().backward()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for (name, mine), (_, theirs) in zip(model.named_parameters(), reference.named_parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize("attention", ["packed", "sdpa", "eager"])
def test_no_gradient_flows_between_packed_examples(tiny_model: Path, dialogues: list[Example], attention: str) -> None:
    model = load_policy(tiny_model, TrainSpec(), attention=attention)
    batch = pack(dialogues[:3], MicroBatch((0, 1, 2)), STEP)
    embedded: list[torch.Tensor] = []

    def keep(_module: object, _inputs: object, output: torch.Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    model.get_input_embeddings().register_forward_hook(keep)
    agent_logprobs(model, batch)[batch.example == 1].sum().backward()
    gradient = embedded[0].grad
    assert gradient is not None
    start, end = batch.boundaries[1:3].tolist()
    assert (gradient[0, :start] == 0).all()
    assert (gradient[0, end:] == 0).all()
    assert gradient[0, start:end].abs().sum() > 0


def test_packed_attention_refuses_what_it_cannot_serve(tiny_model: Path) -> None:
    model = load_policy(tiny_model, TrainSpec(), attention="packed")
    with pytest.raises(ValueError, match="packed batches only"):
        model(input_ids=torch.tensor([[1, 2, 3]]))


def test_lora_trains_the_adapter_alone(tiny_model: Path) -> None:
    model = load_policy(tiny_model, TrainSpec(lora=LoraSpec(rank=2)), attention="packed")
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trainable
    assert all("lora_" in name for name in trainable)


def test_an_adapter_of_another_rank_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    load_policy(tiny_model, TrainSpec(lora=LoraSpec(rank=2)), attention="packed").save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"rank 2, but lora\.rank is 4"):
        load_policy(tmp_path, TrainSpec(lora=LoraSpec(rank=4)), attention="packed")
