"""Batches: the examples that are worked on together, as tensors.

A *step* is what one optimiser update learns from: ``batch_size`` examples over all processes. Each
process works through its share in *micro-batches* of a bounded number of tokens. The whole plan
follows from the lengths and the seed: every process makes the same one, and a resumed run only has to
skip what is done. The step's normalisers are known from the plan, so that neither the number of
micro-batches nor that of processes changes the loss.

A micro-batch is *packed*: its examples follow each other in one row without padding, with
positions that start again from 0 and attention that stays within each example. Attempts at one question begin with the
same prompt, which is most of their tokens where passages are given: the row holds it once, and they *continue*
it. A causal model computes the same for it whatever follows, so nothing is changed but the work. What is repeated
is the prompt's last token alone, which predicts the first token of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any

import numpy as np
import torch

from platform_sdk.training.attention import Segments
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
    """One optimiser update: ``shares[process]`` are equally many micro-batches for each process.

    With ``share_prompts`` a micro-batch holds a prompt once, whatever the number of examples that begin with it.
    ``sampled`` is false if the log-probabilities of any example, in whichever process's share, are unknown.
    """

    shares: tuple[tuple[MicroBatch, ...], ...]
    examples: int
    agent_tokens: int
    share_prompts: bool = False
    sampled: bool = True


@dataclass(frozen=True, eq=False)
class Batch:
    """A packed micro-batch of T tokens, A of them the agent's, from n examples.

    Attributes:
        input_ids: (1, T) int64.
        position_ids: (1, T) int64, from 0 in each example.
        boundaries: (s + 1,) int32, where segments start, and T: a segment is an example, a prompt that several
            examples share, or what of an example stands behind such a prompt.
        segments: the same on the host, and which segment each continues.
        predicts: (1, T) bool, true where the *next* token is the agent's.
        targets: (A,) int64, the agent's tokens in their order.
        example: (A,) int64, which of the n examples an agent's token belongs to.
        old_logprobs: (A,) float32, of the policy that sampled the tokens; None where they are unknown for any
            example of the step.
        advantages: (A,) float32, 0 where the examples have none.
        reference_logprobs: (A,) float32, of the policy not to stray from; None where the objective needs none.
        engine_logprobs: (A,) float32, as the sampling engine reported them, where ``old_logprobs`` are the trainer's of
            the same tokens; None where the objective needs none.
        step_tokens: agent tokens of the whole step, over micro-batches and processes.
        step_examples: examples of the whole step.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    boundaries: torch.Tensor
    segments: Segments
    predicts: torch.Tensor
    targets: torch.Tensor
    example: torch.Tensor
    old_logprobs: torch.Tensor | None
    advantages: torch.Tensor
    step_tokens: int
    step_examples: int
    reference_logprobs: torch.Tensor | None = None
    engine_logprobs: torch.Tensor | None = None

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
    share_prompts: bool = False,
) -> list[Step]:
    """All steps of a run: every epoch sees every example once, in an order of its own."""
    steps = []
    for epoch in range(epochs):
        order = np.random.default_rng((seed, epoch)).permutation(len(examples)).tolist()
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            steps.append(_step(examples, chosen, processes, micro_batch_tokens, share_prompts))
    return steps


def shared_step(
    examples: Sequence[Example], processes: int, micro_batch_tokens: int, share_prompts: bool = False, masked: int = 0
) -> Step:
    """The one step that learns from all of these examples, whatever their order.

    Args:
        masked: examples that are left out of the loss, but count in the step's number of examples.
    """
    step = _step(examples, range(len(examples)), processes, micro_batch_tokens, share_prompts)
    return replace(step, examples=step.examples + masked)


def _step(
    examples: Sequence[Example], chosen: Sequence[int], processes: int, micro_batch_tokens: int, share_prompts: bool
) -> Step:
    return Step(
        shares=_shares(
            _units(examples, chosen, processes, micro_batch_tokens, share_prompts), micro_batch_tokens, processes
        ),
        examples=len(chosen),
        agent_tokens=sum(examples[index].agent_tokens for index in chosen),
        share_prompts=share_prompts,
        sampled=all(examples[index].logprobs for index in chosen),
    )


@dataclass(frozen=True)
class _Unit:
    """Examples that go into one micro-batch, and their tokens there."""

    examples: tuple[int, ...]
    tokens: int


def _units(
    examples: Sequence[Example], chosen: Sequence[int], processes: int, limit: int, share_prompts: bool
) -> list[_Unit]:
    """The examples one by one, or those of one prompt together: as many as fit, and within one process's share."""
    if not share_prompts:
        return [_Unit((index,), len(examples[index].token_ids)) for index in sorted(chosen)]
    groups = _by_prompt(examples, sorted(chosen))
    total = sum(len(prompt) + sum(len(examples[i].token_ids) - len(prompt) for i in g) for prompt, g in groups.items())
    units = []
    for prompt, group in groups.items():
        unit = _Unit((), len(prompt))
        for index in group:
            own = len(examples[index].token_ids) - len(prompt)
            if unit.examples and unit.tokens + own > min(limit, ceil(total / processes)):
                units.append(unit)
                unit = _Unit((), len(prompt))
            unit = _Unit((*unit.examples, index), unit.tokens + own)
        units.append(unit)
    return units


def _by_prompt(examples: Sequence[Example], chosen: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
    """Group examples by shared prompt: every token before the first sampled one, except the last."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index in chosen:
        spoken = examples[index].agent_mask.index(1)
        groups.setdefault(examples[index].token_ids[: spoken - 1], []).append(index)
    return groups


def _shares(units: list[_Unit], limit: int, processes: int) -> tuple[tuple[MicroBatch, ...], ...]:
    """Spread units over processes and micro-batches: balanced, equally many, at most ``limit`` tokens.

    A unit of more than ``limit`` tokens, which is one example, gets a micro-batch of its own.
    """
    maximum = ceil(len(units) / processes)
    rounds = min(maximum, ceil(sum(unit.tokens for unit in units) / (processes * limit)))
    while True:
        bins = _balanced(units, rounds * processes)
        if rounds == maximum or all(len(b) < 2 or sum(unit.tokens for unit in b) <= limit for b in bins):
            break
        rounds += 1
    shortest = min(units, key=lambda unit: (unit.tokens, unit.examples)).examples[0]
    batches = [
        MicroBatch(tuple(index for unit in b for index in unit.examples)) if b else MicroBatch((shortest,), filler=True)
        for b in bins
    ]
    return tuple(tuple(batches[process::processes]) for process in range(processes))


def _balanced(units: list[_Unit], count: int) -> list[list[_Unit]]:
    """Longest first, each into the bin with the fewest tokens so far."""
    bins: list[list[_Unit]] = [[] for _ in range(count)]
    totals = [0] * count
    for unit in sorted(units, key=lambda unit: (-unit.tokens, unit.examples)):
        lightest = min(range(count), key=lambda b: (totals[b], len(bins[b]), b))
        bins[lightest].append(unit)
        totals[lightest] += unit.tokens
    return bins


@dataclass(frozen=True)
class _Segment:
    """Tokens ``start`` to ``stop`` of an example of the micro-batch, behind segment ``continues`` if it is not -1."""

    example: int
    start: int
    stop: int
    continues: int = -1


def _segments(chosen: Sequence[Example], share_prompts: bool) -> list[_Segment]:
    if not share_prompts:
        return [_Segment(number, 0, len(example.token_ids)) for number, example in enumerate(chosen)]
    segments: list[_Segment] = []
    for prompt, group in _by_prompt(chosen, range(len(chosen))).items():
        shared = len(group) > 1 and len(prompt) > 0
        parent, start = (len(segments), len(prompt)) if shared else (-1, 0)
        if shared:
            segments.append(_Segment(group[0], 0, len(prompt)))
        segments += [_Segment(number, start, len(chosen[number].token_ids), parent) for number in group]
    return segments


def pack(examples: Sequence[Example], micro: MicroBatch, step: Step) -> Batch:
    """The tensors of one micro-batch."""
    chosen = [examples[index] for index in micro.examples]
    segments = _segments(chosen, step.share_prompts)
    lengths = np.array([segment.stop - segment.start for segment in segments])
    numbers = np.repeat([segment.example for segment in segments], lengths)
    positions = np.concatenate([np.arange(segment.start, segment.stop) for segment in segments])

    def gathered(values: Callable[[Example], Sequence[float]], dtype: Any) -> np.ndarray:
        return np.concatenate([np.array(values(chosen[s.example])[s.start : s.stop], dtype=dtype) for s in segments])

    tokens = gathered(lambda example: example.token_ids, np.int64)
    mask = gathered(lambda example: example.agent_mask, bool)
    if micro.filler:
        mask[:] = False
    old = torch.from_numpy(gathered(lambda example: example.logprobs, np.float32)[mask]) if step.sampled else None
    advantages = gathered(lambda example: example.advantages or (0.0,) * len(example.token_ids), np.float32)
    # The token at j is predicted at j - 1, in the same segment: a segment's first token is never the agent's.
    predicts = np.append(mask[1:], False)
    return Batch(
        input_ids=torch.from_numpy(tokens)[None],
        position_ids=torch.from_numpy(positions)[None],
        boundaries=torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)),
        segments=Segments(tuple(lengths.tolist()), tuple(segment.continues for segment in segments)),
        predicts=torch.from_numpy(predicts)[None],
        targets=torch.from_numpy(tokens[mask]),
        example=torch.from_numpy(numbers[mask]),
        old_logprobs=old,
        advantages=torch.from_numpy(advantages[mask]),
        step_tokens=step.agent_tokens,
        step_examples=step.examples,
    )
