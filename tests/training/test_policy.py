"""Packed examples are trained on exactly as if each stood alone."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rank": 4}, r"rank 2, but lora\.rank is 4"),
        ({"alpha": 8.0}, r"alpha 32\.0, but lora\.alpha is 8\.0"),
        ({"targets": ("q_proj", "v_proj")}, r"other modules than lora\.targets"),
    ],
)
def test_an_adapter_of_other_settings_is_refused(
    tiny_model: Path, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    lora = LoraSpec(rank=2)
    load_policy(tiny_model, TrainSpec(lora=lora), attention="packed").save_pretrained(tmp_path)
    with pytest.raises(UserError, match=says):
        load_policy(tmp_path, TrainSpec(lora=lora.model_copy(update=change)), attention="packed")


@pytest.mark.parametrize(
    "change", [{"use_rslora": True}, {"use_dora": True}, {"alpha_pattern": {"q_proj": 4}}, {"rank_pattern": {"q": 4}}]
)
def test_adapter_that_is_no_plain_lora_is_refused(tiny_model: Path, tmp_path: Path, change: dict[str, object]) -> None:
    """Training and sampling would scale the adapter differently."""
    lora = LoraSpec(rank=2)
    load_policy(tiny_model, TrainSpec(lora=lora), attention="packed").save_pretrained(tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=f"an adapter with {next(iter(change))} cannot be trained further; merge it"):
        load_policy(tmp_path, TrainSpec(lora=lora), attention="packed")


def test_loaded_adapter_is_unchanged_under_the_recipes_dropout(tiny_model: Path, tmp_path: Path) -> None:
    first = load_policy(tiny_model, TrainSpec(lora=LoraSpec(rank=2, targets=("q_proj",))), attention="packed")
    with torch.no_grad():
        for name, parameter in first.named_parameters():
            if "lora_" in name:
                parameter.normal_()
    first.save_pretrained(tmp_path)
    spec = TrainSpec(lora=LoraSpec(rank=2, targets=("q_proj",), dropout=0.25))
    second = load_policy(tmp_path, spec, attention="packed")
    adapted = [name for name, parameter in second.named_parameters() if parameter.requires_grad]
    assert len(adapted) == 2 * 2  # A and B in each of the two layers
    for name in adapted:
        torch.testing.assert_close(second.get_parameter(name), first.get_parameter(name), rtol=0, atol=0)
    assert {module.p for module in second.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}
