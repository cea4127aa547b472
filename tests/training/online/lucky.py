"""A task that a tiny model can learn in seconds: to say one of the lucky words.

The agent is asked some words and says up to four; ``reward`` is the share of those it might have said that are lucky.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from platform_sdk.config.online import OnlineSpec
from platform_sdk.records import Evidence, Question, Rollout, Trajectory, Turn
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.rollout import Agent, Generate, SearchRequest
from platform_sdk.sampling.seeds import seed_of
from platform_sdk.training.credit import Credit, GroupAdvantage
from platform_sdk.training.online.groups import OnlineTask

LUCKY = frozenset(range(3, 20))
WORDS = 4
SPEC = OnlineSpec(
    updates=4, questions=3, group=4, learning_rate=2e-2, warmup_ratio=0.0, beta=0.01, micro_batch_tokens=60,
    checkpoint_steps=2, device="cpu", processes=1,
)  # fmt: skip


@dataclass(frozen=True)
class Lucky:
    tokenizer: Any
    weights: str
    phase: str
    corpus: str = "none"

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        prompt = self.tokenizer(question.text)["input_ids"]
        seed = seed_of(self.phase, question.id, attempt)
        name = f"{question.id}#{attempt}"
        done = yield Generate(prompt, SamplingParams(max_tokens=WORDS, seed=seed), name)
        length = len(prompt) + len(done.token_ids)
        said = Trajectory(
            role="agent", id="agent", token_ids=(*prompt, *done.token_ids),
            agent_mask=(0,) * len(prompt) + (1,) * len(done.token_ids),
            logprobs=(0.0,) * len(prompt) + done.logprobs,
            turns=(Turn(speaker="agent", text="", start=len(prompt), end=length),),
        )  # fmt: skip
        lucky = sum(token in LUCKY for token in done.token_ids)
        return Rollout(
            question=question, attempt=attempt, seed=seed, main=said, outcome="answered",
            rewards={"any": float(lucky > 0), "reward": lucky / WORDS}, weights=self.weights, corpus=self.corpus,
        )  # fmt: skip


def question(number: int) -> Question:
    return Question(id=f"q{number}", text=f"w{20 + number} w{30 + number}", answers=("-",), dataset="lucky")


def nothing(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    return [[] for _ in requests]


def task(count: int = 8, live: int = 6, credit: Credit | None = None) -> OnlineTask:
    questions = [question(number) for number in range(count)]
    return OnlineTask(questions, nothing, Lucky, live, credit or GroupAdvantage("reward"))
