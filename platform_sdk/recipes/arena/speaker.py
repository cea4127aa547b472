"""A policy that talks: opens dialogues, samples replies with seeds of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from platform_sdk.records import Evidence
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.engine import Completion, PromptTooLong, SamplingParams
from platform_sdk.sampling.rollout import Agent, Generate
from platform_sdk.sampling.seeds import seed_of


@dataclass(frozen=True)
class Distribution:
    """How replies are drawn from the policy."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int


@dataclass(frozen=True)
class Reply:
    """A turn of the policy; ``cut`` is one that ended at the limit of tokens."""

    text: str
    cut: bool


@dataclass(frozen=True)
class Speaker:
    """The policy's part in one rollout; ``name`` and ``seed`` are the rollout's."""

    tokenizer: Any
    distribution: Distribution
    name: str
    seed: int

    def dialogue(self, system: str, opening: str, evidence: Sequence[Evidence] = ()) -> Dialogue:
        """A new dialogue with the policy, whose opening shows ``evidence``; nothing is said in it yet."""
        return Dialogue(self.tokenizer, system, opening, evidence=evidence)

    def reply(self, dialogue: Dialogue, place: str) -> Agent[Reply | None]:
        """The policy's next turn, heard by the dialogue; None if the dialogue leaves no room for one.

        Args:
            place: names the turn within the rollout; its random stream is of this name.
        """
        drawn = self.distribution
        params = SamplingParams(
            temperature=drawn.temperature,
            top_p=drawn.top_p,
            top_k=drawn.top_k,
            max_tokens=drawn.max_tokens,
            seed=seed_of(self.seed, place),
        )
        try:
            completion: Completion = yield Generate(tuple(dialogue.token_ids), params, f"{self.name}/{place}")
        except PromptTooLong:
            return None
        return Reply(dialogue.hear(completion), completion.finish == "length")
