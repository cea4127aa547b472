"""A sampling engine that says what a test tells it to, and a search that finds the same whatever is asked."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

from platform_sdk.agents.planner_messages import Medium
from platform_sdk.records import Evidence, Question
from platform_sdk.sampling.engine import Completion, PromptTooLong, Request, SamplingEngine
from platform_sdk.sampling.models import load_tokenizer
from platform_sdk.sampling.rollout import SearchRequest

TOKENIZER = load_tokenizer("hopforge:world-base")
END = TOKENIZER.eos_token_id
QUESTION = Question(
    id="q", text="Who is the mother of the director of Amberfall ?", answers=("Lena Roth",), dataset="world",
    topic_entities=("Amberfall",),
)  # fmt: skip


class Scripted:
    """A sampling engine whose policy is a function from a request to token ids: the one thing that must be fake here,
    since no real policy misbehaves on demand. It finishes requests in random order."""

    weight_version = "scripted"
    generate = SamplingEngine.generate

    def __init__(
        self,
        policy: Callable[[Request], list[int]],
        seed: int = 0,
        tokenizer: Any = TOKENIZER,
        max_model_len: int = 1024,
    ) -> None:
        self.tokenizer, self.policy, self.max_model_len = tokenizer, policy, max_model_len
        self.rng, self.waiting = random.Random(seed), list[Request]()

    def submit(self, request: Request) -> None:
        if len(request.token_ids) >= self.max_model_len:
            raise PromptTooLong(request.id)
        self.waiting.append(request)

    def step(self) -> list[Completion]:
        request = self.waiting.pop(self.rng.randrange(len(self.waiting)))
        room = min(request.params.max_tokens, self.max_model_len - len(request.token_ids))
        ids = self.policy(request)[:room]
        finish: Literal["stop", "length"] = "stop" if ids and ids[-1] == self.tokenizer.eos_token_id else "length"
        return [Completion(request.id, tuple(ids), tuple(-0.5 for _ in ids), finish)]

    def release(self, dialogue: str) -> None:
        pass

    def cancel(self, request_id: str) -> None:
        self.waiting = [r for r in self.waiting if r.id != request_id]

    def close(self) -> None:
        pass


def say(text: str) -> list[int]:
    return [*TOKENIZER(text, add_special_tokens=False)["input_ids"], END]


def search(medium: Medium) -> Callable[[Sequence[SearchRequest], int], list[list[Evidence]]]:
    def find(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        if medium == "kg":
            assert all(r.scope.get("head") for r in requests)
            return [
                [Evidence(kind="triple", id="t", title="Ida Roth", text="Amberfall, director, Ida Roth", score=1.0)]
            ] * len(requests)
        return [
            [Evidence(kind="passage", id="p", title="Amberfall", text="Ida Roth directed Amberfall .", score=1.0)]
        ] * len(requests)

    return find
