"""Which examples are worked on together, and how they become tensors.

A *step* is what one optimiser update learns from: ``batch_size`` examples over all processes. Each
process works through its share in *micro-batches* of a bounded number of tokens. The whole plan
follows from the lengths and the seed: every process makes the same one, and a resumed run only has to
skip what is done. The step's normalisers are known from the plan, so that neither the number of
micro-batches nor that of processes changes the loss.

A micro-batch is *packed*: its examples stand one behind the other in one row without padding, with
positions that start anew and attention that stays within each example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any

import numpy as np
import torch

from platform_sdk.training.examples import Example


@dataclass(frozen=True)
class MicroBatch:
    """Indices of the examples a process works on at once.

    A ``filler`` teaches nothing: it keeps a process without an example of its own in step with the others.
    """

    examples: tuple[int, ...]
    filler: bool = False


@dataclass(frozen=True)
class Step:
    """One optimiser update: ``shares[process]`` are equally many micro-batches for each process."""

    shares: tuple[tuple[MicroBatch, ...], ...]
    examples: int
    agent_tokens: int


@dataclass(frozen=True, eq=False)
class Batch:
    """A packed micro-batch of T tokens, A of them the agent's, from n examples.

    Attributes:
        input_ids: (1, T) int64.
        position_ids: (1, T) int64, from 0 in each example.
        boundaries: (n + 1,) int32, where examples start, and T.
        longest: tokens of the longest example.
        predicts: (1, T) bool, true where the *next* token is the agent's.
        targets: (A,) int64, the agent's tokens in their order.
        example: (A,) int64, which of the n examples an agent's token belongs to.
        old_logprobs: (A,) float32, of the policy that sampled the tokens.
        advantages: (A,) float32, 0 where the examples have none.
        reference_logprobs: (A,) float32, of the policy not to stray from; None where the objective needs none.
        step_tokens: agent tokens of the whole step, over micro-batches and processes.
        step_examples: examples of the whole step.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    boundaries: torch.Tensor
    longest: int
    predicts: torch.Tensor
    targets: torch.Tensor
    example: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    step_tokens: int
    step_examples: int
    reference_logprobs: torch.Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {k: v.to(device) for k, v in values.items() if isinstance(v, torch.Tensor)}
        return replace(self, **moved)


def plan(
    examples: Sequence[Example],
    *,
    batch_size: int,
    micro_batch_tokens: int,
    epochs: int,
    seed: int,
    processes: int = 1,
) -> list[Step]:
    """All steps of a run: every epoch sees every example once, in an order of its own."""
    steps = []
    for epoch in range(epochs):
        order = np.random.default_rng((seed, epoch)).permutation(len(examples)).tolist()
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            steps.append(_step(examples, chosen, processes, micro_batch_tokens))
    return steps


def shared_step(examples: Sequence[Example], processes: int, micro_batch_tokens: int) -> Step:
    """The one step that learns from all of these examples, whatever their order."""
    return _step(examples, range(len(examples)), processes, micro_batch_tokens)


def _step(examples: Sequence[Example], chosen: Sequence[int], processes: int, micro_batch_tokens: int) -> Step:
    lengths = {index: len(examples[index].token_ids) for index in chosen}
    return Step(
        shares=_shares(lengths, micro_batch_tokens, processes),
        examples=len(chosen),
        agent_tokens=sum(examples[index].agent_tokens for index in chosen),
    )


def _shares(lengths: dict[int, int], limit: int, processes: int) -> tuple[tuple[MicroBatch, ...], ...]:
    """Spread examples over processes and micro-batches: balanced, equally many, at most ``limit`` tokens.

    An example longer than ``limit`` gets a micro-batch of its own.
    """
    most = ceil(len(lengths) / processes)
    rounds = min(most, ceil(sum(lengths.values()) / (processes * limit)))
    while True:
        bins = _balanced(lengths, rounds * processes)
        if rounds == most or all(len(b) < 2 or sum(lengths[i] for i in b) <= limit for b in bins):
            break
        rounds += 1
    shortest = min(lengths, key=lambda index: (lengths[index], index))
    batches = [MicroBatch(tuple(b)) if b else MicroBatch((shortest,), filler=True) for b in bins]
    return tuple(tuple(batches[process::processes]) for process in range(processes))


def _balanced(lengths: dict[int, int], count: int) -> list[list[int]]:
    """Longest first, each into the bin with the fewest tokens so far."""
    bins: list[list[int]] = [[] for _ in range(count)]
    totals = [0] * count
    for index in sorted(lengths, key=lambda index: (-lengths[index], index)):
        lightest = min(range(count), key=lambda b: (totals[b], len(bins[b]), b))
        bins[lightest].append(index)
        totals[lightest] += lengths[index]
    return bins


def pack(examples: Sequence[Example], micro: MicroBatch, step: Step) -> Batch:
    """The tensors of one micro-batch."""
    chosen = [examples[index] for index in micro.examples]
    lengths = np.array([len(example.token_ids) for example in chosen])
    ends = np.cumsum(lengths)
    tokens = np.concatenate([np.array(example.token_ids, dtype=np.int64) for example in chosen])
    mask = np.concatenate([np.array(example.agent_mask, dtype=bool) for example in chosen])
    if micro.filler:
        mask[:] = False
    old = np.concatenate([np.array(example.logprobs, dtype=np.float32) for example in chosen])
    advantages = np.concatenate(
        [np.array(example.advantages or np.zeros(len(example.token_ids)), dtype=np.float32) for example in chosen]
    )
    positions = np.arange(len(tokens)) - np.repeat(ends - lengths, lengths)
    # The token at j is predicted at j - 1, in the same example: an example's first token is never the agent's.
    predicts = np.append(mask[1:], False)
    return Batch(
        input_ids=torch.from_numpy(tokens)[None],
        position_ids=torch.from_numpy(positions)[None],
        boundaries=torch.from_numpy(np.concatenate([[0], ends]).astype(np.int32)),
        longest=int(lengths.max()),
        predicts=torch.from_numpy(predicts)[None],
        targets=torch.from_numpy(tokens[mask]),
        example=torch.from_numpy(np.repeat(np.arange(len(chosen)), lengths)[mask]),
        old_logprobs=torch.from_numpy(old[mask]),
        advantages=torch.from_numpy(advantages[mask]),
        step_tokens=step.agent_tokens,
        step_examples=step.examples,
    )
