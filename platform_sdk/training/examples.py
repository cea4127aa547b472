"""Training examples: what was sampled, as independent dialogues of a bounded length."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from platform_sdk.config.errors import UserError
from platform_sdk.records import Rollout


@dataclass(frozen=True)
class Example:
    """One dialogue to learn from. All sequences have one entry per token.

    Attributes:
        id: ``QUESTION#ATTEMPT/TRAJECTORY``.
        token_ids: as sampled.
        agent_mask: 1 on the tokens the policy produced; only these are learned.
        logprobs: of the policy that sampled them, 0.0 elsewhere.
        weights: digest of that policy.
        advantages: how much better than expected the token's rollout was, 0.0 off the agent's tokens; empty where
            the objective knows no rewards.
    """

    id: str
    token_ids: tuple[int, ...]
    agent_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    weights: str
    advantages: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.token_ids) == len(self.agent_mask) == len(self.logprobs):
            raise ValueError(f"example {self.id}: token_ids, agent_mask and logprobs must have one entry per token")
        if self.advantages and len(self.advantages) != len(self.token_ids):
            raise ValueError(f"example {self.id}: advantages must have one entry per token, or none at all")
        if self.agent_mask and self.agent_mask[0]:
            raise ValueError(f"example {self.id}: the first token has no context to be predicted from")

    @property
    def agent_tokens(self) -> int:
        return sum(self.agent_mask)


@dataclass(frozen=True)
class Fitted:
    """Examples within a length, and what it cost to get there."""

    examples: tuple[Example, ...]
    truncated: int
    tokens_cut: int
    dropped_too_long: int
    dropped_empty: int


def examples_of(
    rollouts: Iterable[Rollout], advantages: Mapping[str, float] | None = None, role: str | None = None
) -> list[Example]:
    """Each trajectory of each rollout, the planner's and its workers', as an example of its own.

    Args:
        advantages: of each rollout, by its id; all agent tokens of a rollout share it.
        role: whose trajectories; None: everybody's.
    """
    return [
        Example(
            id=f"{rollout.id}/{trajectory.id}",
            token_ids=trajectory.token_ids,
            agent_mask=trajectory.agent_mask,
            logprobs=trajectory.logprobs,
            weights=rollout.weights,
            advantages=tuple(float(m) * advantages[rollout.id] for m in trajectory.agent_mask) if advantages else (),
        )
        for rollout in rollouts
        for trajectory in rollout.trajectories
        if role is None or trajectory.role == role
    ]


def fit(examples: Sequence[Example], max_length: int, too_long: Literal["truncate", "drop", "error"]) -> Fitted:
    """Bring examples to at most ``max_length`` tokens, and leave out those without an agent's token.

    Truncation keeps the beginning: a prefix of a dialogue is still what the policy said in its context.

    Raises:
        UserError: an example is too long and ``too_long`` is ``error``.
    """
    kept: list[Example] = []
    truncated = tokens_cut = dropped_too_long = dropped_empty = 0
    for example in examples:
        excess = len(example.token_ids) - max_length
        if excess > 0:
            if too_long == "error":
                raise UserError(
                    f"example {example.id} has {len(example.token_ids)} tokens, more than max_length {max_length}; "
                    "raise max_length, or set too_long to truncate or drop"
                )
            if too_long == "drop":
                dropped_too_long += 1
                continue
            truncated += 1
            tokens_cut += excess
            example = replace(
                example,
                token_ids=example.token_ids[:max_length],
                agent_mask=example.agent_mask[:max_length],
                logprobs=example.logprobs[:max_length],
                advantages=example.advantages[:max_length],
            )
        if example.agent_tokens:
            kept.append(example)
        else:
            dropped_empty += 1
    return Fitted(tuple(kept), truncated, tokens_cut, dropped_too_long, dropped_empty)


def digest_examples(examples: Iterable[Example]) -> str:
    """SHA-256 (hex) over everything of the examples that training can see, in their order."""
    sha = hashlib.sha256()
    for example in examples:
        content = (
            example.id,
            example.token_ids,
            example.agent_mask,
            example.logprobs,
            example.weights,
            example.advantages,
        )
        sha.update(repr(content).encode())
        sha.update(b"\n")
    return sha.hexdigest()
