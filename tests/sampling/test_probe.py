"""The proof that an engine samples from the weights it claims, on numbers made by hand."""

from __future__ import annotations

import pytest

from platform_sdk.sampling.engine import Completion, Probe, WeightsMismatch
from platform_sdk.sampling.probe import check, check_moved

PROMPTS = ((1,), (2, 3))


def answers(*logprobs: float) -> list[Completion]:
    return [Completion(str(i), (0,), (value,), "length") for i, value in enumerate(logprobs)]


def test_the_coarser_of_engine_and_reference_sets_the_tolerance() -> None:
    check(Probe(PROMPTS, (-1.0, -2.0)), answers(-1.0009, -2.0), dtype="float32", what="w")
    with pytest.raises(WeightsMismatch, match=r"probe prompt 1 .* -2\.00110"):
        check(Probe(PROMPTS, (-1.0, -2.0)), answers(-1.0, -2.0011), dtype="float32", what="w")
    for engine, reference in (("bfloat16", "float32"), ("float32", "bfloat16")):
        check(Probe(PROMPTS, (-1.0, -2.0), reference), answers(-1.1, -2.0), dtype=engine, what="w")


def test_an_engine_moves_along_with_the_reference() -> None:
    before, after = Probe(PROMPTS, (-1.0, -2.0)), Probe(PROMPTS, (-1.0003, -1.9996))  # 0.0005 apart
    for right in ((-1.0003, -1.9996), (-1.00021, -1.9997), (-1.0005, -1.9995)):
        check_moved(before, after, answers(*right), dtype="float32", what="w")
    # (0.0001 * 0.0003 + 0.0001 * 0.0004) / 0.0005^2 = 28 % of the way
    for wrong, way in (((-1.0, -2.0), "0%"), ((-1.0001, -1.9999), "28%"), ((-0.9997, -2.0004), "-100%")):
        with pytest.raises(WeightsMismatch, match=rf"still samples from the old ones.* {way} of"):
            check_moved(before, after, answers(*wrong), dtype="float32", what="w")


def test_change_within_the_noise_is_not_taken_for_new_weights() -> None:
    before, after = Probe(PROMPTS, (-1.0, -2.0)), Probe(PROMPTS, (-1.0002, -2.0002))
    check_moved(before, after, answers(-1.0, -2.0), dtype="float32", what="w")
    far = Probe(PROMPTS, (-1.1, -2.1))
    check_moved(before, far, answers(-1.0, -2.0), dtype="bfloat16", what="w")
    with pytest.raises(WeightsMismatch):
        check_moved(before, far, answers(-1.0, -2.0), dtype="float32", what="w")
