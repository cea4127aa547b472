"""An engine that says what a test tells it to, a search with known entities, and a group of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.methods.prograph.agent import ProGraphAgent
from platform_sdk.methods.prograph.settings import AgentSpec
from platform_sdk.records import Evidence, Question, Rollout
from platform_sdk.sampling.engine import Request
from platform_sdk.sampling.rollout import SearchRequest, run
from tests.methods.arena.talking import character_tokenizer
from tests.methods.mygo.scripted import Scripted

TOKENIZER = character_tokenizer()
QUESTION = Question(
    id="q", text="Who is the mother of the director of Amberfall?", answers=("Lena Roth",), dataset="world",
    gold_passages=("Amberfall", "Ida Roth"),
)  # fmt: skip
ASK, ASK_MOTHER = "<think>t</think><query>director</query>", "<think>t</think><query>mother</query>"
RIGHT, WRONG = "<think>t</think><answer>Lena Roth</answer>", "<think>t</think><answer>nobody</answer>"
FACTS = {
    "director": Evidence(
        kind="hyperedge", id="e1", title="Amberfall", text="Ida Roth directed Amberfall.", score=1.0,
        entities=("Ida Roth", "Amberfall"),
    ),
    "mother": Evidence(
        kind="hyperedge", id="e2", title="Ida Roth", text="Ida Roth was born to Lena Roth in Velm.", score=1.0,
        entities=("17", "18", "19"), entity_names=("Ida Roth", "Lena Roth", "Velm"),
    ),
}  # fmt: skip


class ScriptedPolicyEngine(Scripted):
    """An engine whose policy is a function from a request and the turns taken to a text; scores by the prompt's end."""

    weight_version = "w"

    def __init__(self, says: Callable[[Request, int], str], max_model_len: int = 10_000) -> None:
        def policy(request: Request) -> list[int]:
            taken = TOKENIZER.decode(request.token_ids).count("<|assistant|>") - 1
            return [*TOKENIZER(says(request, taken), add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id]

        super().__init__(policy, tokenizer=TOKENIZER, max_model_len=max_model_len)
        self.scored: list[tuple[str, str]] = []

    def score(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        self.scored += [
            (TOKENIZER.decode(prompt), TOKENIZER.decode(gold))
            for prompt, gold in zip(prompts, continuations, strict=True)
        ]
        return [(-len(prompt) / 100, -len(prompt) / 50) for prompt in prompts]

    def cancel(self, request_id: str) -> None:
        raise AssertionError("nothing is cancelled")


def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    return [[FACTS[request.query]] if request.query in FACTS else [] for request in requests]


def play(turns: Sequence[str], attempt: int = 0, max_model_len: int = 10_000, **spec: Any) -> Rollout:
    """Return the rollout of an agent whose turns say ``turns``."""
    agent = ProGraphAgent(Policy(TOKENIZER, "w"), Decoding(), "c", 0, "test", AgentSpec(**spec), search)
    engine: Any = ScriptedPolicyEngine(lambda request, taken: turns[taken], max_model_len)
    [rollout] = run([partial(agent.rollout, QUESTION, attempt)], engine, live=1)
    return rollout
