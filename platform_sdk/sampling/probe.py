"""Verification of an engine's weights by log-probabilities on probe prompts.

Some engines accepted new weights but continued with the old ones, or with a mixture. So after every change of weights
an engine generates one token greedily for each probe prompt, and its log-probability must match a plain forward pass of
an independently loaded model. (The highest log-probability is compared, not the token, because of near ties.)
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.sampling.engine import Completion, Probe, SamplingParams, WeightsMismatch, sampling_generator

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.06}
NOISE = {"float32": 3e-5, "bfloat16": 0.09, "float16": 0.011}
"""Standard deviation of the difference between a correct engine's log-probabilities and the reference: in bfloat16 0.05
to 0.09 for SmolLM2-135M untrained and fine-tuned, on a CPU; float16 has three more bits."""
GREEDY = SamplingParams(temperature=0.0, max_tokens=1)


def probe_prompts(vocabulary: int) -> tuple[tuple[int, ...], ...]:
    """Return prompts of 1 to 29 random tokens, which depend only on the vocabulary size."""
    random = sampling_generator(0)
    return tuple(tuple(random.integers(0, vocabulary, size=1 + 4 * i).tolist()) for i in range(8))


def probe_of(model: PreTrainedModel) -> Probe:
    """Compute the reference by plain forward passes of ``model``, one per prompt, without a cache."""
    import torch

    prompts = probe_prompts(int(model.config.vocab_size))
    logprobs = []
    with torch.inference_mode():
        for prompt in prompts:
            logits = model(torch.tensor([prompt], device=model.device), use_cache=False).logits[0, -1]
            logprobs.append(float(torch.log_softmax(logits.float(), dim=-1).max()))
    return Probe(prompts, tuple(logprobs), str(model.dtype).removeprefix("torch."))


def probe_of_path(path: Path | str, *, dtype: str, device: str) -> Probe:
    """Compute the reference from the weights at ``path``, which are loaded temporarily.

    GPU memory is returned to the driver, since vLLM would count memory cached by torch's allocator as used.
    """
    import torch

    from platform_sdk.sampling.models import load_model

    found = probe_of(load_model(path, dtype=dtype, device=device))
    if device != "cpu":
        gc.collect()  # a model has reference cycles
        torch.cuda.empty_cache()
    return found


def check(probe: Probe, completions: Sequence[Completion], *, dtype: str, what: str) -> None:
    """Compare an engine's greedy one-token completions of the probe's prompts with the reference.

    Raises:
        WeightsMismatch: a log-probability differs from the reference by more than the tolerance of the coarser
            ``dtype``.
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
    """Check after an update that the engine's log-probabilities changed like the reference's.

    An update changes them by less than the tolerance of ``check``, so an engine with the old weights would pass that
    check for many updates. This check projects the engine's change over all prompts onto the change from ``before`` to
    ``after``: 1 for the new weights, 0 for the old ones. It applies if the change is so much larger than ``NOISE`` that
    a correct engine is 5 standard deviations from one half.

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
