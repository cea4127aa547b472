"""Rollouts that search: tokens per second against the same engine without dialogues. Goal: 0.9 at 0.3 s per search.

    python -m benchmarks.gpu.rollouts [--model 0.6B] [--dry-run] [--json FILE]

A stub stands in for the retriever and answers after a given time. The bare run gives the engine prompts as long as the
dialogues' turns, all at once. The engine is vLLM if it is installed, else transformers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from benchmarks.gpu.harness import Setup, main
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.records import Evidence
from platform_sdk.sampling.background import ThreadedCalls
from platform_sdk.sampling.engine import SamplingEngine, SamplingParams
from platform_sdk.sampling.load import load_engine
from platform_sdk.sampling.rollout import Agent, Generate, SearchFunction, SearchRequest, look_up, run

TURNS, LATENCIES = 3, (0.2, 0.3, 0.6, 1.5)


def measure(case: Setup) -> list[dict[str, Any]]:
    live, count, prompt, answer, found = (4, 6, 12, 6, 8) if case.dry else (64, 192, 512, 128, 384)
    name = "vllm" if find_spec("vllm") and not case.dry else "transformers"
    longest = prompt + TURNS * (answer + found)
    spec = EngineSpec(engine=name, live=live, dtype=case.precision, device=case.device, max_model_len=longest)  # type: ignore[arg-type]
    engine = load_engine(spec, case.path)
    draw = random.Random(0)

    def words(length: int) -> tuple[int, ...]:
        return tuple(draw.randrange(3, case.shape.vocabulary) for _ in range(length))

    prompts = [words(prompt) for _ in range(count)]
    evidence = words(found)
    bare = _bare(engine, prompts, evidence, answer)
    rows = []
    for latency in (0.0,) if case.dry else LATENCIES:
        began = time.perf_counter()
        agents = [
            partial(_agent, partial(_search, latency), number, start, evidence, answer)
            for number, start in enumerate(prompts)
        ]
        tokens = sum(run(agents, engine, live=2 * live, background=ThreadedCalls(min(live, 64))))
        ours = tokens / (time.perf_counter() - began)
        rows.append(
            {
                "model": case.name, "engine": name, "seconds of a search": latency, "tokens/s": ours,
                "bare tokens/s": bare, "ratio": ours / bare, "goal": 0.9,
            }
        )  # fmt: skip
    engine.close()
    return rows


def _agent(
    search: SearchFunction,
    number: int,
    prompt: tuple[int, ...],
    evidence: tuple[int, ...],
    answer: int,
) -> Agent[int]:
    """Speak and search by turns; return how many tokens were sampled."""
    tokens, sampled = prompt, 0
    for turn in range(TURNS):
        done = yield Generate(tokens, SamplingParams(max_tokens=answer, seed=TURNS * number + turn), str(number))
        sampled += len(done.token_ids)
        if turn < TURNS - 1:
            yield look_up(search, [SearchRequest(f"{number}")], 1)
            tokens = (*tokens, *done.token_ids, *evidence)
    return sampled


def _search(latency: float, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    time.sleep(latency)
    return [[] for _ in requests]


def _bare(engine: SamplingEngine, prompts: list[tuple[int, ...]], evidence: tuple[int, ...], answer: int) -> float:
    """Return the tokens per second of the turns' texts as single prompts, after a warm-up."""
    params = SamplingParams(max_tokens=answer, seed=1)
    engine.generate(prompts[:2], params)
    tokens, began = 0, time.perf_counter()
    texts = list(prompts)
    for _ in range(TURNS):
        done = engine.generate(texts, params)
        tokens += sum(len(one.token_ids) for one in done)
        texts = [(*text, *one.token_ids, *evidence) for text, one in zip(texts, done, strict=True)]
    return tokens / (time.perf_counter() - began)


if __name__ == "__main__":
    main(__doc__ or "", measure, models=("0.6B", "3B"))
