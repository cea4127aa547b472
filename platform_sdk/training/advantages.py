"""How much better than its group a rollout was: GRPO's stand-in for a value function.

Source: Shao et al., DeepSeekMath (2024), section 4.1.2; the deviation is the unbiased one and 1e-4 keeps the quotient
finite, as in ARENA's published code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from platform_sdk.config.errors import UserError
from platform_sdk.records import Rollout

EPSILON = 1e-4


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (std + 1e-4) for the rewards of one group; exactly zero where there is nothing to compare."""
    if not varied(rewards):
        return [0.0] * len(rewards)
    mean, deviation = fmean(rewards), stdev(rewards)
    return [(reward - mean) / (deviation + EPSILON) for reward in rewards]


def varied(rewards: Sequence[float]) -> bool:
    """Whether a group teaches anything: its rewards are not all equal."""
    return any(reward != rewards[0] for reward in rewards)


def grouped(rollouts: Iterable[Rollout], reward: str) -> dict[str, dict[str, float]]:
    """The rewards by question id and rollout id: a group is all the attempts at one question.

    Raises:
        UserError: a rollout does not have this reward, or comes twice.
    """
    groups: dict[str, dict[str, float]] = {}
    for rollout in rollouts:
        group = groups.setdefault(rollout.question.id, {})
        if reward not in rollout.rewards:
            raise UserError(
                f"rollout {rollout.id} has no reward {reward!r} (it has {', '.join(rollout.rewards) or 'none'}); "
                "name one of these in online.reward"
            )
        if rollout.id in group:
            raise UserError(f"rollout {rollout.id} comes twice in one update")
        group[rollout.id] = rollout.rewards[reward]
    return groups


def advantages_of(rollouts: Iterable[Rollout], reward: str) -> dict[str, float]:
    """The advantage of each rollout, by its id, within the attempts at its own question.

    Raises:
        UserError: a rollout does not have this reward, or comes twice.
    """
    return {
        name: advantage
        for group in grouped(rollouts, reward).values()
        for name, advantage in zip(group, group_advantages(list(group.values())), strict=True)
    }
