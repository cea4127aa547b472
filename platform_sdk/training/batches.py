"""Batches: packed examples as tensors.

A *step* is one optimiser update on ``batch_size`` examples over all processes. Each process computes its share in
*micro-batches* with a bounded number of tokens. The plan depends only on the lengths and the seed: every process makes
the same plan, and a resumed run skips finished steps. The step's normalisers follow from the plan, so the loss does not
depend on the number of micro-batches or processes.

A micro-batch is *packed*: its examples are concatenated in one row without padding, each with positions from 0 and
attention within the example. Attempts at one question share a prompt, which with given passages is most of their
tokens: the row has it once, and the attempts *continue* it. In a causal model this saves work without changing results.
Only the prompt's last token, which predicts the first token of each attempt, is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from heapq import heapreplace
from math import ceil
from typing import Any

import numpy as np
import torch

from platform_sdk.training.attention import Segments
from platform_sdk.training.examples import Example


@dataclass(frozen=True)
class MicroBatch:
    """Indices of the examples in one forward pass of a process.

    A ``filler`` has zero loss: it keeps a process without examples in step with the others.
    """

    examples: tuple[int, ...]
    filler: bool = False


@dataclass(frozen=True)
class Step:
    """One optimiser update: ``shares[process]`` are equally many micro-batches for each process.

    With ``share_prompts`` a micro-batch holds a prompt only once.
    ``sampled`` is false if any example, in any process's share, has unknown log-probabilities.
    """

    shares: tuple[tuple[MicroBatch, ...], ...]
    examples: int
    agent_tokens: int
    share_prompts: bool = False
    sampled: bool = True


@dataclass(frozen=True, eq=False)
class Batch:
    """A packed micro-batch of T tokens from n examples, with A agent tokens.

    Attributes:
        input_ids: (1, T) int64.
        position_ids: (1, T) int64, from 0 in each example.
        boundaries: (s + 1,) int32, the starts of the segments, and T: a segment is an example, a prompt shared by
            several examples, or the rest of an example after such a prompt.
        segments: the segments on the host, and the segment that each continues.
        predicts: (1, T) bool, true if the *next* token is the agent's.
        targets: (A,) int64, the agent tokens in order.
        example: (A,) int64, the index of each agent token's example.
        old_logprobs: (A,) float32, under the sampling policy; None if unknown for any example of the step.
        advantages: (A,) float32, 0 for examples without advantages.
        reference_logprobs: (A,) float32, under the reference policy; None if the objective needs none.
        engine_logprobs: (A,) float32, as reported by the sampling engine, if ``old_logprobs`` are recomputed by the
            trainer; None if the objective needs none.
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
    """Return all steps of a run: every epoch has every example once, in a different order."""
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
    """Return a single step on all examples; their order does not matter.

    Args:
        masked: number of examples that are left out of the loss but counted in ``step_examples``.
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
    """Examples of one micro-batch, and their number of tokens in it."""

    examples: tuple[int, ...]
    tokens: int


def _units(
    examples: Sequence[Example], chosen: Sequence[int], processes: int, limit: int, share_prompts: bool
) -> list[_Unit]:
    """Return single examples, or groups that share a prompt, limited to what fits and to one process's share."""
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

    A unit of more than ``limit`` tokens (a single example) gets a separate micro-batch.
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
    """Put units, longest first, into the bin with the fewest tokens."""
    bins: list[list[_Unit]] = [[] for _ in range(count)]
    lightest = [(0, 0, b) for b in range(count)]  # a heap of each bin's tokens, units and number
    for unit in sorted(units, key=lambda unit: (-unit.tokens, unit.examples)):
        tokens, held, b = lightest[0]
        bins[b].append(unit)
        heapreplace(lightest, (tokens + unit.tokens, held + 1, b))
    return bins


@dataclass(frozen=True)
class _Segment:
    """Tokens ``start`` to ``stop`` of an example in the micro-batch, after segment ``continues`` unless it is -1."""

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
    """Return the tensors of a micro-batch."""
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
    # Position j - 1 predicts the token at j in the same segment: a segment's first token is never the agent's.
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
