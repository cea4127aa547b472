"""Log-probabilities a part of the vocabulary at a time are those of the whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    Cohere2Config,
    Cohere2ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PreTrainedModel,
)

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import LoraSpec, TrainSpec
from platform_sdk.training import logprobs
from platform_sdk.training.batches import MicroBatch, pack, shared_step
from platform_sdk.training.examples import Example
from platform_sdk.training.logprobs import token_scores
from platform_sdk.training.policy import agent_logprobs, load_policy

TOKENS, HIDDEN, VOCABULARY = 7, 5, 23


def problem(dtype: torch.dtype = torch.float32) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """Hidden states, weight and bias; targets at the vocabulary's ends too; a gradient from above."""
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(shape, generator=generator, dtype=dtype) * 3
        for shape in ((TOKENS, HIDDEN), (VOCABULARY, HIDDEN), (VOCABULARY,))
    ]
    targets = torch.tensor([0, 22, 3, 3, 11, 12, 22])
    return [x.requires_grad_() for x in inputs], targets, torch.randn(TOKENS, generator=generator)


def token_logprobs(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor,
    temperature: float = 1.0,
) -> torch.Tensor:  # fmt: skip
    return token_scores(hidden, weight, bias, targets, temperature, entropy=False)[0]


def whole(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor) -> torch.Tensor:
    logits = torch.nn.functional.linear(hidden, weight, bias)
    return torch.log_softmax(logits, dim=-1)[torch.arange(len(targets)), targets]


@pytest.mark.parametrize("width", [1, 4, 22, 23, 1000])
@pytest.mark.parametrize("with_bias", [False, True])
def test_values_and_gradients_equal_the_definition(
    monkeypatch: pytest.MonkeyPatch, width: int, with_bias: bool
) -> None:
    monkeypatch.setattr(logprobs, "LOGITS_AT_ONCE", width * TOKENS)
    inputs, targets, upstream = problem()
    bias = inputs[2] if with_bias else None
    expected = whole(inputs[0], inputs[1], bias, targets)
    found = token_logprobs(inputs[0], inputs[1], bias, targets)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    wanted = inputs if with_bias else inputs[:2]
    for mine, theirs in zip(
        torch.autograd.grad(found, wanted, upstream), torch.autograd.grad(expected, wanted, upstream), strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [4, 1000])
def test_logits_are_divided_by_the_temperature(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(logprobs, "LOGITS_AT_ONCE", width * TOKENS)
    inputs, targets, upstream = problem()
    found = token_logprobs(*inputs, targets, 0.7)
    logits = torch.nn.functional.linear(*inputs)
    expected = torch.log_softmax(logits / 0.7, dim=-1)[torch.arange(TOKENS), targets]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for mine, theirs in zip(
        torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(expected, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [4, 1000])
def test_a_frozen_output_layer_gets_no_gradient(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(logprobs, "LOGITS_AT_ONCE", width * TOKENS)
    (hidden, weight, _), targets, _ = problem()
    frozen = weight.detach()
    token_logprobs(hidden, frozen, None, targets).sum().backward()
    expected = torch.autograd.grad(whole(hidden, frozen, None, targets).sum(), hidden)[0]
    torch.testing.assert_close(hidden.grad, expected, atol=1e-5, rtol=1e-5)
    assert frozen.grad is None


@pytest.mark.parametrize("width", [1, 4, 22, 1000])
def test_entropies_equal_the_definition_and_have_no_gradient(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(logprobs, "LOGITS_AT_ONCE", width * TOKENS)
    inputs, targets, _ = problem()
    values, entropies = token_scores(*inputs, targets, 0.7, entropy=True)
    expected = torch.distributions.Categorical(logits=torch.nn.functional.linear(*inputs) / 0.7).entropy()
    torch.testing.assert_close(entropies, expected, atol=1e-5, rtol=1e-5)
    assert not entropies.requires_grad
    assert torch.equal(values, token_logprobs(*inputs, targets, 0.7))


def test_autocast_rounds_products_and_not_sums() -> None:
    (hidden, weight, _), targets, upstream = problem()
    with torch.autocast("cpu", torch.bfloat16):
        found = token_logprobs(hidden, weight, None, targets)
    assert found.dtype == torch.float32
    rounded = [x.detach().bfloat16().float().requires_grad_() for x in (hidden, weight)]
    expected = whole(rounded[0], rounded[1], None, targets)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    grads = torch.autograd.grad(found, (hidden, weight), upstream)
    for mine, theirs in zip(grads, torch.autograd.grad(expected, rounded, upstream), strict=True):
        torch.testing.assert_close(mine, theirs, atol=0.02 * theirs.abs().max().item(), rtol=0)


class Largest(TorchDispatchMode):
    """Remembers the most numbers that any tensor made within held."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.numel())
        return result


def test_forward_and_backward_never_hold_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, vocabulary, width = 200, 1000, 10
    monkeypatch.setattr(logprobs, "LOGITS_AT_ONCE", tokens * width)
    hidden = torch.randn(tokens, 3, requires_grad=True)
    weight = torch.randn(vocabulary, 3, requires_grad=True)
    with Largest() as seen:
        token_logprobs(hidden, weight, None, torch.randint(vocabulary, (tokens,))).sum().backward()
    assert seen.numbers == vocabulary * 3  # the weight's gradient; all logits would be 200,000


def altered(build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    torch.manual_seed(0)
    return build()


SIZES: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    "build",
    [
        lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, attn_implementation="eager")),
        lambda: Cohere2ForCausalLM(Cohere2Config(**SIZES, attn_implementation="eager")),
        lambda: GraniteForCausalLM(GraniteConfig(**SIZES, logits_scaling=8.0, attn_implementation="eager")),
    ],
    ids=["soft capping", "scale", "scaling"],
)
def test_models_that_alter_their_logits_are_refused(
    dialogues: list[Example], build: Callable[[], PreTrainedModel]
) -> None:
    batch = pack(dialogues[:1], MicroBatch((0,)), shared_step(dialogues[:1], 1, 100))
    with pytest.raises(UserError, match="alters its logits"):
        agent_logprobs(altered(build), batch)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")
def test_an_adapter_on_the_output_layer_is_refused(tiny_model: Path, dialogues: list[Example]) -> None:
    spec = TrainSpec(lora=LoraSpec(rank=2, targets=("q_proj", "lm_head")))
    batch = pack(dialogues[:1], MicroBatch((0,)), shared_step(dialogues[:1], 1, 100))
    with pytest.raises(UserError, match=r"lora\.targets"):
        agent_logprobs(load_policy(tiny_model, spec, attention="packed"), batch)


def test_the_model_gives_logits_as_ever_afterwards(tiny_model: Path, dialogues: list[Example]) -> None:
    model = load_policy(tiny_model, TrainSpec(), attention="eager").eval()
    tokens = torch.tensor([[1, 2, 3]])
    before = model(input_ids=tokens).logits
    agent_logprobs(model, pack(dialogues[:2], MicroBatch((0, 1)), shared_step(dialogues[:2], 1, 100)))
    assert torch.equal(model(input_ids=tokens).logits, before)
    assert before.shape == (1, 3, 40)
