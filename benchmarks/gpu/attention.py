"""Attention of the transformers engine on a GPU: torch's fused kernels against the products that a CPU uses.

    python -m benchmarks.gpu.attention [--model 135M] [--dry-run] [--json FILE]

The engine reads prompts and then decodes greedily, twice from empty caches. The log-probabilities of the first tokens
must agree within the tolerance of the precision.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.gpu.harness import Setup, main, seconds
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.probe import GREEDY, TOLERANCE
from platform_sdk.sampling.transformers_engine import TransformersEngine


def measure(case: Setup) -> list[dict[str, Any]]:
    return [_measure(case, precision) for precision in (["float32"] if case.dry else ["float32", "bfloat16"])]


def _measure(case: Setup, precision: str) -> dict[str, Any]:
    rows, length, tokens = (4, 40, 8) if case.dry else (48, 800, 64)
    engine = TransformersEngine(
        case.path, live=rows, dtype=precision, device=case.device, max_model_len=length + tokens + 64
    )
    draw = random.Random(0)
    prompts = [tuple(draw.randrange(3, case.shape.vocabulary) for _ in range(length)) for _ in range(rows)]
    more = SamplingParams(temperature=0.0, max_tokens=tokens)

    def first_tokens() -> list[float]:
        engine._slots.clear()
        return [done.logprobs[0] for done in engine.generate(prompts, GREEDY)]

    found = {}
    for engine.kernels in ("fused", "invariant"):
        read = seconds(first_tokens, repeats=1)
        step = seconds(lambda: engine.generate(prompts, more), repeats=1) / tokens
        found[engine.kernels] = read, step, first_tokens()
    engine.close()
    (read, step, ours), (read_by_products, step_by_products, theirs) = found["fused"], found["invariant"]
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    assert apart <= TOLERANCE[precision], f"{precision}: log-probabilities differ by {apart}"
    return {
        "model": case.name, "precision": precision, "prompts, s": read, "prompts by products, s": read_by_products,
        "decoding step, ms": 1000 * step, "step by products, ms": 1000 * step_by_products,
        "ratio": step_by_products / step, "log-probabilities apart": apart,
    }  # fmt: skip


if __name__ == "__main__":
    main(__doc__ or "", measure, models=("135M", "0.6B"))
