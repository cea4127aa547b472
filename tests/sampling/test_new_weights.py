"""Keys and values of the old weights are not used with the new ones."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.transformers_engine import TransformersEngine


def test_a_prompt_that_was_cached_under_other_weights_is_read_again(tiny: Path, other: Path) -> None:
    """The cache has so many rows that the probe's prompts do not push the cached one out."""
    given, params = tuple(range(3, 43)), SamplingParams(max_tokens=6, seed=4)
    engine = TransformersEngine(tiny, live=16)
    engine.generate([given], params)
    engine.load_weights(other)
    [new] = engine.generate([given], params)
    [expected] = TransformersEngine(other, live=16).generate([given], params)
    assert (new.token_ids, new.logprobs) == (expected.token_ids, expected.logprobs)
