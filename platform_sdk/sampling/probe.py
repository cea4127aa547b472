"""Proof that an engine samples from the weights it claims: log-probabilities on probe prompts.

Engines have been seen to accept new weights and go on with the old ones, or with a wrong mixture of
both. So after every change of weights an engine continues some prompts greedily by one token, and
the tokens' log-probabilities must be those of a plain forward pass of an independently loaded
model. (The greatest log-probability is compared, not the token: a near tie proves nothing.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.sampling.engine import Completion, Probe, SamplingParams, WeightsMismatch, sampling_generator

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.15, "float16": 0.05}
NOISE = {"float32": 3e-5, "bfloat16": 0.015, "float16": 0.003}
"""Standard deviation of what a right engine's log-probabilities differ from the reference by."""
GREEDY = SamplingParams(temperature=0.0, max_tokens=1)


def probe_prompts(vocabulary: int, count: int = 8) -> tuple[tuple[int, ...], ...]:
    """Prompts of 1 to 29 random tokens, the same ones for a given vocabulary size."""
    random = sampling_generator(0)
    return tuple(tuple(random.integers(0, vocabulary, size=1 + 4 * i).tolist()) for i in range(count))


def probe_of(model: PreTrainedModel) -> Probe:
    """The reference by plain forward passes of ``model``, one per prompt, without any cache."""
    import torch

    prompts = probe_prompts(int(model.config.vocab_size))
    logprobs = []
    with torch.inference_mode():
        for prompt in prompts:
            logits = model(torch.tensor([prompt], device=model.device), use_cache=False).logits[0, -1]
            logprobs.append(float(torch.log_softmax(logits.float(), dim=-1).max()))
    return Probe(prompts, tuple(logprobs), str(model.dtype).removeprefix("torch."))


def probe_of_path(path: Path | str, *, dtype: str, device: str) -> Probe:
    """The reference from the weights at ``path``, loaded for this purpose and dropped afterwards."""
    from platform_sdk.sampling.models import load_model

    return probe_of(load_model(path, dtype=dtype, device=device))


def check(probe: Probe, completions: Sequence[Completion], *, dtype: str, what: str) -> None:
    """Compare an engine's greedy one-token completions of the probe's prompts with the reference.

    Raises:
        WeightsMismatch: a log-probability is further from the reference than the tolerance of the coarser of
            the two's ``dtype``.
    """
    tolerance = max(TOLERANCE[dtype], TOLERANCE[probe.dtype])
    for number, (completion, expected) in enumerate(zip(completions, probe.logprobs, strict=True)):
        found = completion.logprobs[0]
        if not abs(found - expected) <= tolerance:
            raise WeightsMismatch(
                f"{what}: the engine does not sample from these weights: on probe prompt {number} the greatest "
                f"log-probability is {found:.5f}, but a plain forward pass gives {expected:.5f} (tolerance {tolerance})"
            )


def check_moved(before: Probe, after: Probe, completions: Sequence[Completion], *, dtype: str, what: str) -> None:
    """Check after an update that the engine's log-probabilities have moved along with the reference's.

    An update moves them by less than ``check`` tolerates, so that an engine which kept the old weights would pass it
    for many updates. The moves are compared over all prompts at once: 1 is where the engine should be on the way
    from ``before`` to ``after``, 0 is where it stays with the old weights; looked at where the way is so much longer
    than ``NOISE`` that a right engine is 5 standard deviations from one half.

    Raises:
        WeightsMismatch: the engine still samples from the weights of ``before``.
    """
    way = [new - old for new, old in zip(after.logprobs, before.logprobs, strict=True)]
    length = math.sqrt(sum(step * step for step in way))
    if length < 10 * max(NOISE[dtype], NOISE[after.dtype]):
        return
    moved = [done.logprobs[0] - old for done, old in zip(completions, before.logprobs, strict=True)]
    place = sum(a * b for a, b in zip(moved, way, strict=True)) / length**2
    if place < 0.5:
        raise WeightsMismatch(
            f"{what}: the engine accepted the new weights but still samples from the old ones: its "
            f"log-probabilities on the probe prompts have gone {place:.0%} of the update's way"
        )
