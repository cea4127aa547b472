"""Training examples: sampled dialogues of bounded length."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from platform_sdk.errors import UserError
from platform_sdk.records import Rollout, Trajectory
from platform_sdk.training.credit import Advantages, TrajectoryKey


@dataclass(frozen=True)
class Example:
    """One dialogue to train on. All sequences have one entry per token, or are empty if unknown.

    Attributes:
        id: ``QUESTION#ATTEMPT/TRAJECTORY``.
        token_ids: as sampled.
        agent_mask: 1 for tokens sampled by the policy; only these are learned.
        logprobs: log-probabilities under the sampling policy, 0.0 for other tokens; empty if no policy sampled them.
        weights: digest of the sampling policy.
        advantages: 0.0 except for agent tokens; empty if the objective uses none.
    """

    id: str
    token_ids: tuple[int, ...]
    agent_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    weights: str
    advantages: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.agent_mask) != len(self.token_ids):
            raise ValueError(f"example {self.id}: token_ids and agent_mask must have one entry per token")
        if any(len(values) not in (0, len(self.token_ids)) for values in (self.logprobs, self.advantages)):
            raise ValueError(
                f"example {self.id}: logprobs and advantages must have one entry per token, or none at all"
            )
        if self.agent_mask and self.agent_mask[0]:
            raise ValueError(f"example {self.id}: the first token has no context to be predicted from")

    @property
    def agent_tokens(self) -> int:
        return sum(self.agent_mask)


@dataclass(frozen=True)
class FittedExamples:
    """Examples within a length limit, and counts of truncated and dropped ones."""

    examples: tuple[Example, ...]
    truncated: int
    tokens_cut: int
    dropped_too_long: int
    dropped_empty: int


def examples_of(
    rollouts: Iterable[Rollout], advantages: Advantages | None = None, role: str | None = None
) -> list[Example]:
    """Return each trajectory and branch of each rollout as an example, except trajectories for scoring only.

    Args:
        advantages: advantages of tokens by trajectory; trajectories without an entry are left out. None for training
            without rewards, which leaves branches out.
        role: train on this role only; None for all roles.

    Raises:
        UserError: the advantages do not fit the trajectories.
    """
    trajectories: dict[TrajectoryKey, tuple[Rollout, Trajectory]] = {}
    for rollout in rollouts:
        for trajectory in (*rollout.trajectories, *(() if advantages is None else rollout.branches)):
            key = TrajectoryKey(rollout.id, trajectory.id)
            if key in trajectories:
                raise UserError(f"rollout {rollout.id} is given twice; give each rollout once")
            trajectories[key] = rollout, trajectory
    if advantages is not None:
        _check(advantages, {key: trajectory for key, (_, trajectory) in trajectories.items()})
    return [
        Example(
            id=f"{rollout.id}/{trajectory.id}",
            token_ids=trajectory.token_ids,
            agent_mask=trajectory.agent_mask,
            logprobs=trajectory.logprobs,
            weights=rollout.weights,
            advantages=() if advantages is None else tuple(advantages[key]),
        )
        for key, (rollout, trajectory) in trajectories.items()
        if (role is None or trajectory.role == role) and (advantages is None or key in advantages)
    ]


def truncated_examples(
    rollouts: Iterable[Rollout],
    ends: Container[int],
    stops: Sequence[str] = (),
    limits: tuple[int, int] | None = None,
) -> set[str]:
    """Return the ids of the examples of trajectories cut off by a token limit, which lack an end token or stop string.

    They include the main trajectory of a rollout that ran out of context, and branches that did, which end with a
    message to the agent.

    Args:
        ends: tokens that end a turn.
        stops: strings that end a turn.
        limits: maximum tokens of a turn and of a trajectory, if stop strings are unknown; a shorter last turn of a
            shorter trajectory ended at one of them.
    """
    found = set()
    for rollout in rollouts:
        for trajectory in (*rollout.trajectories, *rollout.branches):
            spoken = [token for token, mask in zip(trajectory.token_ids, trajectory.agent_mask, strict=True) if mask]
            full = trajectory is rollout.main and rollout.outcome == "context_limit"
            full |= trajectory.use == "branch" and trajectory.turns[-1].speaker == "environment"
            if full or (spoken and spoken[-1] not in ends and not _stopped(trajectory, stops, limits)):
                found.add(f"{rollout.id}/{trajectory.id}")
    return found


def _stopped(trajectory: Trajectory, stops: Sequence[str], limits: tuple[int, int] | None) -> bool:
    """Return True if a stop string ended the agent's last turn: sampling ends at the first one."""
    if not trajectory.agent_turns:
        return False
    last = trajectory.agent_turns[-1]
    if limits is not None and last.end - last.start < limits[0] and len(trajectory.token_ids) < limits[1]:
        return True
    return any(stop in last.text for stop in stops)


def _check(advantages: Advantages, trajectories: Mapping[TrajectoryKey, Trajectory]) -> None:
    for key, values in advantages.items():
        where = f"credit of rollout {key.rollout}, trajectory {key.trajectory}"
        if key not in trajectories:
            raise UserError(f"{where}: there is no such trajectory to train on; leave out those for scoring only")
        mask = trajectories[key].agent_mask
        if len(values) != len(mask):
            raise UserError(f"{where}: {len(values)} advantages for {len(mask)} tokens; give one per token")
        if not all(isfinite(value) and (sampled or not value) for value, sampled in zip(values, mask, strict=True)):
            raise UserError(f"{where}: advantages must be finite, and 0 off the agent's tokens")


def fit(examples: Sequence[Example], max_length: int, too_long: Literal["truncate", "drop", "error"]) -> FittedExamples:
    """Limit examples to ``max_length`` tokens, and leave out those without an agent token.

    Truncation keeps the beginning, since a prefix of a dialogue is still a valid sample in its context.

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
    return FittedExamples(tuple(kept), truncated, tokens_cut, dropped_too_long, dropped_empty)


def digest_examples(examples: Iterable[Example]) -> str:
    """Return SHA-256 (hex) over all fields of the examples that affect training, in order."""
    sha = hashlib.sha256()
    for example in examples:
        sha.update(repr(tuple(vars(example).values())).encode())
        sha.update(b"\n")
    return sha.hexdigest()
