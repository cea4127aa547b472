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
    """Distribution that tokens are sampled from; see ``SamplingParams``."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True)
class Reply:
    """A turn of the policy; ``cut`` is true if the turn ended at the token limit."""

    text: str
    cut: bool


@dataclass(frozen=True)
class Speaker:
    """Sampler of the policy's turns in one rollout.

    ``name`` and ``seed`` belong to the rollout; ``max_tokens`` limits each reply.
    """

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
        """Sample the policy's next turn and append it to the dialogue.

        Args:
            place: the turn's key, unique within the rollout: the turn's seed is derived from the rollout's seed and
                this key.
            role: the role in which the policy replies, e.g. ``worker``; it selects the model if the policy is a pair
                of models, and is ignored otherwise.
            thread: the dialogue's key within the rollout. Turns of one dialogue share it, so that the engine can keep
                the dialogue's KV cache between turns; it never affects the tokens. Default: ``place``. The empty
                string is the key of the rollout's main dialogue.
            stop: stop strings; the reply includes the one that ended it.

        Returns:
            The reply, or None if the context window has no room for another token.
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
    """An agent with everything that a rollout depends on besides the question and the attempt.

    ``corpus`` is the digest of the passages or graph that the agent searches or is given. ``seed_name`` is the purpose
    of the sampling, e.g. ``evaluation``; the seeds are derived from it.
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
        """Return the sampler of the policy's turns in one attempt."""
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
