r"""Step-wise GRPO: the tokens of step t have the advantage of the step's reward R_t (ProGraph-R1, section 3.3).

R_t = outcome + λ1 · r_sp(t) + λ2 · r_struct(t); a step is a turn of the agent, malformed ones included. The baselines:

- ``step``: R_t normalised as in GRPO among the group's rewards at the same step index; trajectories that have ended do
  not count, and a single one gets 0. Biased if the policy decides when to stop: late steps are compared only among the
  trajectories that continued.
- ``trajectory``: R_t among all steps of the group. Longer trajectories have more weight.
- ``return_to_go``: as ``trajectory``, for outcome + Σ_{k ≥ t} (λ1 · r_sp(k) + λ2 · r_struct(k)), the return from a
  step; the outcome counts once.

Over all steps of N trajectories the variance is the mean squared deviation times N / (N - 1): the steps of a trajectory
share its outcome, so the independent samples are the trajectories. With λ1 = λ2 = 0 and equally many steps that is
exactly GRPO's unbiased variance of the outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import sqrt
from statistics import fmean

from platform_sdk.agents.speaker import Decoding
from platform_sdk.config.credit import GroupCreditSpec
from platform_sdk.methods.prograph.rewards import outcome
from platform_sdk.methods.prograph.settings import AgentSpec, CreditSpec
from platform_sdk.methods.prograph.step_progress import branch_history, with_likelihood, with_sampling
from platform_sdk.records import Rollout, Trajectory
from platform_sdk.sampling.rollout import Agent
from platform_sdk.training.advantages import EPSILON, GRPO, group_advantages, varied, weighed, weighted_sum, whitened
from platform_sdk.training.credit import (
    Advantages,
    Credit,
    CreditProbe,
    TrajectoryKey,
    muted,
    on_agent_tokens,
    rewards_of,
)
from platform_sdk.training.likelihood import Tokens

Steps = list[list[float]]
"""A number for each step of each trajectory of a group."""
UNSCALED = GroupCreditSpec(scale="none")


@dataclass(frozen=True)
class StepCredit(Credit):
    """Credit of each step separately.

    Attributes:
        reward: name of the outcome reward.
        agent: the agent's settings, used for sampling completions.
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
        number, keep = self.spec.completions, self.spec.train_completions
        if number is None:
            return (yield from with_likelihood(group, probe))
        found = with_sampling(group, probe, self.agent, self.decoding, self.reward, completions=number, keep=keep)
        return (yield from found)

    def advantages(self, group: Sequence[Rollout]) -> Advantages:
        [found] = self.update_advantages([group])
        return found

    def update_advantages(self, groups: Sequence[Sequence[Rollout]]) -> list[Advantages]:
        found = update_step_advantages([self._rewards(group) for group in groups], self.spec)
        return [
            self._branches(group)
            | {
                TrajectoryKey(rollout.id, rollout.main.id): _spread(rollout.main, _weighed(steps, quiet, self.spec))
                for rollout, steps in zip(group, advantages, strict=True)
            }
            for group, advantages in zip(groups, found, strict=True)
            for quiet in [muted(group, self.spec)]
        ]

    def _branches(self, group: Sequence[Rollout]) -> dict[TrajectoryKey, Sequence[float]]:
        """Return the advantages of the branches: outcomes compared among the completions of the same history.

        Completions with equal outcomes are left out, since they would only lessen the weight of the others in the loss.
        """
        siblings: dict[Tokens, list[tuple[Rollout, Trajectory]]] = {}
        for rollout in group:
            for branch in rollout.branches:
                siblings.setdefault(branch_history(branch), []).append((rollout, branch))
        found: dict[TrajectoryKey, Sequence[float]] = {}
        for own in siblings.values():
            outcomes = [outcome(rollout.question, branch)[self.reward] for rollout, branch in own]
            if not varied(outcomes):
                continue
            values = weighed(group_advantages(outcomes), self.spec)
            for (rollout, branch), value in zip(own, values, strict=True):
                found[TrajectoryKey(rollout.id, branch.id)] = on_agent_tokens(value, branch)
        return found

    def _rewards(self, group: Sequence[Rollout]) -> StepRewards:
        turns = [rollout.main.agent_turns for rollout in group]

        def dense(name: str) -> Steps:
            return [[turn.rewards.get(name, 0.0) for turn in own] for own in turns]

        return StepRewards(rewards_of(group, self.reward), dense("progress"), dense("struct"))


@dataclass(frozen=True)
class StepRewards:
    """Rewards of a group: the trajectories' outcomes, and r_sp(t) and r_struct(t) of each of their steps.

    A step without retrieved evidence has a structure reward of 0.
    """

    outcomes: Sequence[float]
    progress: Sequence[Sequence[float]]
    structure: Sequence[Sequence[float]]

    def worths(self, spec: CreditSpec) -> Steps:
        """Return R_t or the return of each step."""
        dense = [
            [
                spec.progress_weight * progress + spec.structure_weight * structure
                for progress, structure in zip(*own, strict=True)
            ]
            for own in zip(self.progress, self.structure, strict=True)
        ]
        return _worths(self.outcomes, dense, spec.baseline)

    def parts(self, spec: CreditSpec) -> list[tuple[float, Steps]]:
        """Return the weights of outcome, progress and structure with their rewards at each step."""
        nothing = [0.0] * len(self.outcomes)
        flat = [[0.0] * len(steps) for steps in self.progress]
        return [
            (1.0, _worths(self.outcomes, flat, spec.baseline)),
            (spec.progress_weight, _worths(nothing, self.progress, spec.baseline)),
            (spec.structure_weight, _worths(nothing, self.structure, spec.baseline)),
        ]


def update_step_advantages(groups: Sequence[StepRewards], spec: CreditSpec) -> list[Steps]:
    """Return the advantages of the steps of an update's groups, before muting and weighing."""
    if spec.aggregation == "gdpo":
        return _gdpo(groups, spec)
    rewards = [group.worths(spec) for group in groups]
    if spec.scale == "group":
        return [_compared(own, spec.baseline, None) for own in rewards]
    divisor = 1.0 if spec.scale == "none" else _deviation([steps for own in rewards for steps in own]) + EPSILON
    return [_compared(own, spec.baseline, divisor) for own in rewards]


def _gdpo(groups: Sequence[StepRewards], spec: CreditSpec) -> list[Steps]:
    """Normalise each reward by the baseline, weigh, sum, and whiten over all steps of the update."""
    sums = [
        weighted_sum([(weight, flat(_compared(part, spec.baseline, None))) for weight, part in group.parts(spec)])
        for group in groups
    ]
    return [
        _divided(values, [len(steps) for steps in group.progress])
        for values, group in zip(whitened(sums), groups, strict=True)
    ]


def flat(steps: Sequence[Sequence[float]]) -> list[float]:
    """Return the concatenated numbers of all steps."""
    return [value for own in steps for value in own]


def _divided(values: Sequence[float], lengths: Sequence[int]) -> Steps:
    rest = iter(values)
    return [list(islice(rest, length)) for length in lengths]


def _worths(outcomes: Sequence[float], dense: Sequence[Sequence[float]], baseline: str) -> Steps:
    pairs = zip(outcomes, dense, strict=True)
    if baseline == "return_to_go":
        return [[own + sum(steps[t:]) for t in range(len(steps))] for own, steps in pairs]
    return [[own + step for step in steps] for own, steps in pairs]


def _compared(rewards: Steps, baseline: str, divisor: float | None) -> Steps:
    """Return the rewards minus their mean, divided by ``divisor`` (None: the deviation of the compared rewards)."""
    return _among_same_index(rewards, divisor) if baseline == "step" else _among_all(rewards, divisor)


def _among_same_index(rewards: Steps, divisor: float | None) -> Steps:
    advantages: Steps = [[] for _ in rewards]
    for index in range(max(map(len, rewards))):
        going = [place for place, steps in enumerate(rewards) if len(steps) > index]
        values = group_advantages([rewards[place][index] for place in going], GRPO if divisor is None else UNSCALED)
        for place, value in zip(going, values, strict=True):
            advantages[place].append(value if divisor is None else value / divisor)
    return advantages


def _among_all(rewards: Steps, divisor: float | None) -> Steps:
    together = flat(rewards)
    if sum(bool(steps) for steps in rewards) < 2 or not varied(together):
        return [[0.0] * len(steps) for steps in rewards]
    mean = fmean(together)
    by = _deviation(rewards) + EPSILON if divisor is None else divisor
    return [[(reward - mean) / by for reward in steps] for steps in rewards]


def _deviation(rewards: Steps) -> float:
    """Return the deviation over all steps, with one independent sample per trajectory; 0 for fewer than two."""
    together = flat(rewards)
    trajectories = sum(bool(steps) for steps in rewards)
    if trajectories < 2:
        return 0.0
    mean = fmean(together)
    return sqrt(fmean((reward - mean) ** 2 for reward in together) * trajectories / (trajectories - 1))


def _weighed(steps: Sequence[float], quiet: bool, spec: CreditSpec) -> list[float]:
    return [0.0] * len(steps) if quiet else weighed(steps, spec)


def _spread(trajectory: Trajectory, steps: Sequence[float]) -> list[float]:
    """Return the steps' advantages for the tokens of their turns, and 0 for the environment's tokens."""
    values = [0.0] * len(trajectory.token_ids)
    for turn, value in zip(trajectory.agent_turns, steps, strict=True):
        values[turn.start : turn.end] = [value] * (turn.end - turn.start)
    return values
