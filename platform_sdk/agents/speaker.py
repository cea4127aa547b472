"""Dialogues with a policy: openings, replies sampled with derived seeds, and the resulting rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from platform_sdk.records import Evidence, Outcome, Question, Rollout, Trajectory
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.engine import Completion, PromptTooLong, SamplingParams
from platform_sdk.sampling.rollout import Agent, Generate
from platform_sdk.sampling.seeds import seed_of


@dataclass(frozen=True)
class Policy:
    """Policy of a dialogue: its tokenizer, and the digest of its weights."""

    tokenizer: Any
    weights: str


@dataclass(frozen=True)
class Decoding:
    """Distribution that tokens are drawn from; see ``SamplingParams``."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True)
class Reply:
    """A turn of the policy; ``cut`` is one that ended at the limit of tokens."""

    text: str
    cut: bool


@dataclass(frozen=True)
class Speaker:
    """The policy's part in one rollout; ``name`` and ``seed`` are the rollout's, ``max_tokens`` a reply's limit."""

    tokenizer: Any
    decoding: Decoding
    name: str
    seed: int
    max_tokens: int

    def dialogue(
        self, system: str, opening: str, example: Sequence[str] = (), evidence: Sequence[Evidence] = ()
    ) -> Dialogue:
        """Open a dialogue with the policy; its first message contains ``evidence``."""
        return Dialogue(self.tokenizer, system, opening, example, evidence)

    def reply(
        self, dialogue: Dialogue, place: str | int, *, role: str = "", thread: str | None = None,
        stop: tuple[str, ...] = (),
    ) -> Agent[Reply | None]:  # fmt: skip
        """Sample the policy's next turn into the dialogue; return None if the dialogue leaves no room for one.

        Args:
            place: names the turn within the rollout; its random stream is of this name.
            role: who speaks, which matters to a pair of models only.
            thread: names the dialogue to the engine, which may keep what it read of it: by default ``place``; empty
                for the rollout's own name.
            stop: strings that end the reply, which includes them.
        """
        params = SamplingParams(
            **vars(self.decoding), max_tokens=self.max_tokens, stop=stop, seed=seed_of(self.seed, place)
        )
        name = self.name if thread == "" else f"{self.name}/{place if thread is None else thread}"
        try:
            completion: Completion = yield Generate(tuple(dialogue.token_ids), params, name, role)
        except PromptTooLong:
            return None
        return Reply(dialogue.hear(completion), completion.finish == "length")


@dataclass(frozen=True)
class PolicyAgent:
    """An agent with everything that one rollout depends on besides the question and the attempt.

    ``corpus`` is the digest of what is searched or given; ``seed_name`` names what is sampled for: the seeds follow
    from it.
    """

    policy: Policy
    decoding: Decoding
    corpus: str
    seed: int
    seed_name: str

    @property
    def weights(self) -> str:
        return self.policy.weights

    def speaker(self, question: Question, attempt: int, max_tokens: int) -> Speaker:
        """Return the policy's part in one attempt."""
        seed = seed_of(self.seed, self.seed_name, question.id, attempt)
        return Speaker(self.policy.tokenizer, self.decoding, f"{question.id}#{attempt}", seed, max_tokens)

    def recorded(
        self, question: Question, attempt: int, seed: int, main: Trajectory, others: Sequence[Trajectory],
        outcome: Outcome,
    ) -> Rollout:  # fmt: skip
        """Return the dialogues as a rollout without rewards."""
        return Rollout(
            question=question, attempt=attempt, seed=seed, main=main, others=tuple(others), outcome=outcome,
            weights=self.weights, corpus=self.corpus,
        )  # fmt: skip
