"""Attention by torch's kernel for GPUs is the packed one; autocast and grouped heads change nothing of it.

The kernel itself runs on CUDA only. Here its place is taken by its definition, written down for CPUs; that its
arguments are the kernel's is checked with tensors that hold no numbers.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import varlen

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import TrainSpec
from platform_sdk.training.attention import PACKED, VARLEN, Segments, packed_attention, varlen_attention
from platform_sdk.training.batches import pack, shared_step
from platform_sdk.training.policy import agent_logprobs, attention_for, load_policy
from tests.training.test_shared_prompts import MIXED

SEGMENTS = Segments((3, 2, 1, 4), (-1, 0, 0, -1))  # ten tokens: a prompt, two answers to it, an example of its own


def definition(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, query_starts: torch.Tensor, key_starts: torch.Tensor,
    longest_query: int, longest_key: int, *, scale: float | None, window_size: tuple[int, int], enable_gqa: bool,
) -> torch.Tensor:  # fmt: skip
    """Attention of each sequence, causal from its last token backwards, as torch documents ``varlen_attn``."""
    assert window_size == (-1, 0)
    assert enable_gqa
    assert query.dtype == key.dtype == value.dtype
    assert query_starts.dtype == key_starts.dtype == torch.int32
    assert longest_query == torch.diff(query_starts).max()
    assert longest_key == torch.diff(key_starts).max()
    group = query.shape[1] // key.shape[1]
    parts = []
    for i in range(len(query_starts) - 1):
        q = query[query_starts[i] : query_starts[i + 1]]
        k, v = (
            x[key_starts[i] : key_starts[i + 1]].repeat_interleave(group, dim=1).transpose(0, 1) for x in (key, value)
        )
        scores = q.transpose(0, 1) @ k.transpose(1, 2) * (scale or 1 / math.sqrt(q.shape[-1]))
        hidden = torch.ones(len(q), k.shape[1], dtype=torch.bool).triu(diagonal=1 + k.shape[1] - len(q))
        parts.append((scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(0, 1))
    return torch.cat(parts)


def projections(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Query of four heads, key and value of two."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, heads, 10, 8, generator=generator).to(dtype).requires_grad_() for heads in (4, 2, 2)]


def test_the_keys_of_each_segment_by_hand() -> None:
    assert SEGMENTS.key_lengths == (3, 5, 4, 4)
    assert SEGMENTS.key_places == [0, 1, 2, *[0, 1, 2, 3, 4], *[0, 1, 2, 5], *[6, 7, 8, 9]]


def test_packed_and_varlen_attention_agree_in_values_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", definition)
    found = []
    for attention in (packed_attention, varlen_attention):
        inputs = projections()
        output, _ = attention(torch.nn.Module(), *inputs, None, scaling=0.3, segments=SEGMENTS)
        weighted = output * torch.arange(output.numel()).reshape(output.shape)
        found.append((output, *torch.autograd.grad(weighted.sum(), inputs)))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-5)


def test_loss_and_gradients_of_a_model_agree_with_shared_prompts(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", definition)
    step = shared_step(MIXED, 1, 1000, share_prompts=True)
    batch = pack(MIXED, step.shares[0][0], step)
    found = []
    for attention in (PACKED, VARLEN):
        model = load_policy(tiny_model, TrainSpec(), attention=attention)
        logprobs = agent_logprobs(model, batch)
        (logprobs * batch.advantages).sum().backward()
        found.append([logprobs, *(p.grad for p in model.parameters())])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("attention", [PACKED, VARLEN])
def test_examples_share_a_prompt_under_autocast(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, attention: str
) -> None:
    """Rotary embeddings leave query and key in float32 while the value is in bfloat16."""
    monkeypatch.setattr(varlen, "varlen_attn", definition)
    model = load_policy(tiny_model, TrainSpec(), attention=attention)
    found = []
    for share in (False, True):
        step = shared_step(MIXED, 1, 1000, share_prompts=share)
        batch = pack(MIXED, step.shares[0][0], step)
        with torch.autocast("cpu", torch.bfloat16):
            logprobs = agent_logprobs(model, batch)
        logprobs.sum().backward()
        order = sorted(range(len(logprobs)), key=lambda i: (int(batch.example[i]), i))
        found.append([(int(batch.targets[i]), logprobs[i].item()) for i in order])
    alone, shared = (dict(enumerate(sorted(each))) for each in found)
    for number, (target, logprob) in alone.items():
        assert shared[number][0] == target
        assert shared[number][1] == pytest.approx(logprob, abs=0.1)


def test_the_arguments_are_the_kernels_own() -> None:
    """Torch's own function with tensors of no numbers: it checks names, types and shapes, and computes nothing."""
    inputs: list[Any] = [x.to("meta") for x in projections(torch.bfloat16)]
    output, _ = varlen_attention(torch.nn.Module(), *inputs, None, scaling=0.3, segments=SEGMENTS)
    assert (output.shape, output.dtype) == ((1, 10, 4, 8), torch.bfloat16)


@pytest.mark.parametrize(
    ("settings", "device", "expected"),
    [
        ({}, "cpu", PACKED),
        ({}, "cuda", VARLEN),
        ({"precision": "float32"}, "cuda", PACKED),
        ({"attention": "sdpa"}, "cuda", "sdpa"),
        ({"attention": "varlen"}, "cuda", VARLEN),
    ],
)
def test_the_kernel_is_chosen_where_it_runs(settings: dict[str, Any], device: str, expected: str) -> None:
    assert attention_for(TrainSpec(**settings), device) == expected


@pytest.mark.parametrize(("settings", "device"), [({}, "cpu"), ({"precision": "float32"}, "cuda")])
def test_the_kernel_is_refused_where_it_does_not_run(settings: dict[str, Any], device: str) -> None:
    with pytest.raises(UserError, match="runs in bfloat16 on a CUDA GPU only; set it to auto, or to packed"):
        attention_for(TrainSpec(attention="varlen", **settings), device)
