"""MyGO's sampling decisions: how often a question is tried, what is accepted, and how the threshold rises.

Pure functions over rewards (Mujica-MyGO, section 3.3 and appendix D.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from platform_sdk.recipes.mygo.settings import SelectionSpec
from platform_sdk.records import Rollout
from platform_sdk.training.credit import Advantages, Credit, TrajectoryKey, reward_of

PERFECT = 1.0
"""r_sup: the best reward there is; F1 and EM both end at 1."""


def raised_threshold(threshold: float, mean_reward: float, spec: SelectionSpec) -> float:
    """K ← max(K, (r̄ + r_sup)/2), capped at ``threshold_cap``; it never falls.

    The paper prints (r̄/r_sup + 1)·r_sup, which is never below r_sup, so nothing would ever be accepted; the
    midpoint between what the policy reaches and the best reward is this project's reading of it.
    """
    if spec.threshold == "fixed":
        return threshold
    return max(threshold, min((mean_reward + PERFECT) / 2, spec.threshold_cap))


def next_attempts(rewards: Mapping[int, float], threshold: float, accepted: int, limit: int) -> list[int]:
    """Return the attempts at a question to make next; none when it is done.

    A question is tried once (the first pass), then in waves of as many attempts as acceptable trajectories are
    missing, until it has ``accepted`` of them or has used ``limit`` attempts. So what is sampled depends on rewards
    alone, not on timing, and a wave that was cut short is completed with its missing attempts.

    Args:
        rewards: the rewards by attempt number, in any order; attempts of an unfinished wave may be missing.
    """
    made = 0
    wave = range(1)
    while wave:
        missing = [attempt for attempt in wave if attempt not in rewards]
        if missing:
            return missing
        made = wave.stop
        got = sum(rewards[attempt] >= threshold for attempt in range(made))
        wave = range(made, min(limit, made + max(0, accepted - got)))
    return []


@dataclass(frozen=True)
class Acceptance(Credit):
    """MyGO's credit: 1 for every agent token of the first ``accepted`` rollouts whose reward reaches the threshold."""

    reward: str
    threshold: float
    accepted: int

    def advantages(self, group: Sequence[Rollout]) -> Advantages:
        return {
            TrajectoryKey(rollout.id, trajectory.id): tuple(map(float, trajectory.agent_mask))
            for rollout in self.chosen(group)
            for trajectory in rollout.trajectories
        }

    def informative(self, group: Sequence[Rollout]) -> bool:
        return bool(self.chosen(group))

    def chosen(self, group: Sequence[Rollout]) -> list[Rollout]:
        """Return the accepted rollouts of a group, in its order."""
        return [rollout for rollout in group if reward_of(rollout, self.reward) >= self.threshold][: self.accepted]


def select(rollouts: Sequence[Rollout], reward: str, threshold: float, accepted: int) -> list[Rollout]:
    """Return the rollouts that ``Acceptance`` gives credit to, in the given order."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.question.id, []).append(rollout)
    credit = Acceptance(reward, threshold, accepted)
    chosen = {rollout.id for group in groups.values() for rollout in credit.chosen(group)}
    return [rollout for rollout in rollouts if rollout.id in chosen]
