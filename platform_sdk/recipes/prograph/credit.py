r"""Step-wise GRPO: the tokens of step t carry the advantage of that step's reward R_t (ProGraph-R1, section 3.3).

R_t = outcome + λ1 · r_sp(t) + λ2 · r_struct(t); a step is a turn of the agent, malformed ones included. The baselines:

- ``step``: R_t among the group's rewards at the same step index, normalised as GRPO does; trajectories that have ended
  do not count, and a lone one gets 0. Biased where the policy decides when to stop: late steps are compared among the
  trajectories that went on.
- ``trajectory``: R_t among all steps of the group. A long trajectory weighs more, with each of its steps.
- ``return_to_go``: as ``trajectory``, of outcome + Σ_{k ≥ t} (λ1 · r_sp(k) + λ2 · r_struct(k)): what a step led to; the
  outcome, which comes once, at the end, counts once.

Over all steps of N trajectories the variance is the mean squared deviation times N / (N - 1): the steps of a trajectory
share its outcome, so the independent samples are the trajectories. With λ1 = λ2 = 0 and equally many steps that is
exactly GRPO's unbiased variance of the outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from platform_sdk.agents.speaker import Decoding
from platform_sdk.recipes.prograph.progress import with_likelihood, with_sampling
from platform_sdk.recipes.prograph.rewards import agent_turns
from platform_sdk.recipes.prograph.settings import AgentSpec, CreditSpec
from platform_sdk.records import Rollout, Trajectory
from platform_sdk.sampling.rollout import Agent
from platform_sdk.training.credit import (
    EPSILON,
    Advantages,
    Credit,
    CreditProbe,
    TrajectoryKey,
    group_advantages,
    reward_of,
    varied,
)

Steps = list[list[float]]
"""A number for each step of each trajectory of a group."""


@dataclass(frozen=True)
class StepCredit(Credit):
    """Credits each step by itself.

    Attributes:
        reward: names the outcome among a rollout's rewards.
        agent: as the group was sampled; completions are sampled likewise.
    """

    spec: CreditSpec
    reward: str
    agent: AgentSpec
    decoding: Decoding

    @property
    def prepares(self) -> bool:
        return self.spec.estimator is not None

    def prepare(self, group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
        """Estimate the step progress; the turns get ``certainty`` (after them) and ``progress``."""
        if self.spec.completions is not None:
            return (
                yield from with_sampling(
                    group, probe, self.agent, self.decoding, self.reward, completions=self.spec.completions
                )
            )
        return (yield from with_likelihood(group, probe))

    def advantages(self, group: Sequence[Rollout]) -> Advantages:
        return {
            TrajectoryKey(rollout.id, rollout.main.id): _spread(rollout.main, steps)
            for rollout, steps in zip(group, self._steps(group), strict=True)
        }

    def informative(self, group: Sequence[Rollout]) -> bool:
        """Return whether any step has an advantage; before the group is prepared its step progress counts as 0."""
        return any(any(steps) for steps in self._steps(group))

    def _steps(self, group: Sequence[Rollout]) -> Steps:
        outcomes = [reward_of(rollout, self.reward) for rollout in group]
        return step_advantages(outcomes, [self._dense(rollout) for rollout in group], self.spec.baseline)

    def _dense(self, rollout: Rollout) -> list[float]:
        """Return λ1 · r_sp(t) + λ2 · r_struct(t) of each step; a step that retrieved nothing has no structure."""
        return [
            self.spec.progress_weight * turn.rewards.get("progress", 0.0)
            + self.spec.structure_weight * turn.rewards.get("struct", 0.0)
            for turn in agent_turns(rollout.main)
        ]


def step_advantages(outcomes: Sequence[float], dense: Sequence[Sequence[float]], baseline: str) -> Steps:
    """Return the advantage of each step of a group.

    Args:
        outcomes: of the trajectories.
        dense: what their steps are worth beside the outcome.
        baseline: see ``CreditSpec``.
    """
    if baseline == "return_to_go":
        return _among_all([[own + sum(steps[t:]) for t in range(len(steps))] for own, steps in _pairs(outcomes, dense)])
    rewards = [[own + step for step in steps] for own, steps in _pairs(outcomes, dense)]
    return _among_all(rewards) if baseline == "trajectory" else _among_same_index(rewards)


def _pairs(outcomes: Sequence[float], dense: Sequence[Sequence[float]]) -> zip[tuple[float, Sequence[float]]]:
    return zip(outcomes, dense, strict=True)


def _among_same_index(rewards: Steps) -> Steps:
    advantages: Steps = [[] for _ in rewards]
    for index in range(max(map(len, rewards))):
        going = [place for place, steps in enumerate(rewards) if len(steps) > index]
        for place, value in zip(going, group_advantages([rewards[place][index] for place in going]), strict=True):
            advantages[place].append(value)
    return advantages


def _among_all(rewards: Steps) -> Steps:
    together = [reward for steps in rewards for reward in steps]
    trajectories = sum(bool(steps) for steps in rewards)
    if trajectories < 2 or not varied(together):
        return [[0.0] * len(steps) for steps in rewards]
    mean = fmean(together)
    variance = fmean((reward - mean) ** 2 for reward in together) * trajectories / (trajectories - 1)
    return [[(reward - mean) / (sqrt(variance) + EPSILON) for reward in steps] for steps in rewards]


def _spread(trajectory: Trajectory, steps: Sequence[float]) -> list[float]:
    """Return the steps' advantages on the tokens of their turns, and 0 on the environment's."""
    values = [0.0] * len(trajectory.token_ids)
    for turn, value in zip(agent_turns(trajectory), steps, strict=True):
        values[turn.start : turn.end] = [value] * (turn.end - turn.start)
    return values
