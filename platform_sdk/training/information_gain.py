"""Information gain per turn as a credit for every agent: IGPO (Wang et al., 2025, arXiv 2510.14967).

The reward of turn t < T is the increase in the gold answer's probability, g_t = P(y* | before t + 1) - P(y* | before t)
(``training.likelihood``); the reward of the last turn is the outcome. All rewards of a group are normalised, and a
turn's advantage is the discounted sum from that turn on: A_t = Σ_{k ≥ t} γ^(k - t) (r_k - mean) / (std + 1e-4). For an
agent of one turn the advantages equal GRPO's. Attempts with equal rewards in every turn have no advantages, although
gains and outcomes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from platform_sdk.config.credit import InformationGainSpec
from platform_sdk.records import Rollout
from platform_sdk.sampling.rollout import Agent
from platform_sdk.sampling.special_tokens import encode
from platform_sdk.training.advantages import EPSILON, varied, weighed
from platform_sdk.training.credit import (
    Advantages,
    Credit,
    CreditProbe,
    TrajectoryKey,
    muted,
    on_agent_tokens,
    rewards_of,
)
from platform_sdk.training.likelihood import answer_likelihoods, with_changes

GAIN = "gain"
Turns = list[list[float]]
"""A number for each of the agent's turns of each main trajectory of a group."""


@dataclass(frozen=True)
class InformationGain(Credit):
    """Credit of each turn of the main trajectory; a trajectory called by a turn shares the turn's advantage.

    Attributes:
        reward: name of the outcome reward.
        opening: the agent's text before an answer, after which the gold answer is scored.
    """

    spec: InformationGainSpec
    reward: str
    opening: str

    def prepare(self, group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
        """Score the gold answer before each turn; turns get ``certainty`` (after them) and ``gain``."""
        opening = encode(probe.tokenizer, self.opening)
        starts = [[turn.start for turn in rollout.main.agent_turns] for rollout in group]
        # The last turn is not scored: its reward is the outcome.
        prompts = [
            [*((*rollout.main.token_ids[:start], *opening) for start in own), None]
            for rollout, own in zip(group, starts, strict=True)
        ]
        certainties = yield from answer_likelihoods(prompts, group[0].question.answers[0], probe)
        return [with_changes(rollout, own, GAIN) for rollout, own in zip(group, certainties, strict=True)]

    def advantages(self, group: Sequence[Rollout]) -> Advantages:
        [found] = self.update_advantages([group])
        return found

    def update_advantages(self, groups: Sequence[Sequence[Rollout]]) -> list[Advantages]:
        rewards = [self._rewards(group) for group in groups]
        found = [
            [[0.0] * len(turns) for turns in own] if muted(group, self.spec) else own
            for group, own in zip(groups, update_turn_advantages(rewards, self.spec), strict=True)
        ]
        return [
            {
                key: values
                for rollout, turns in zip(group, own, strict=True)
                for key, values in self._spread(rollout, weighed(turns, self.spec)).items()
            }
            for group, own in zip(groups, found, strict=True)
        ]

    def repeats(self, group: Sequence[Rollout]) -> bool:
        outcomes = rewards_of(group, self.reward)
        return not varied(outcomes) if self.spec.resample == "equal" else not any(outcomes)

    def _rewards(self, group: Sequence[Rollout]) -> Turns:
        """Return the rewards of the turns: weighted gains, then the outcome."""
        return [
            [*(self.spec.weight * turn.rewards.get(GAIN, 0.0) for turn in rollout.main.agent_turns[:-1]), outcome]
            if rollout.main.agent_turns
            else []
            for rollout, outcome in zip(group, rewards_of(group, self.reward), strict=True)
        ]

    def _spread(self, rollout: Rollout, advantages: Sequence[float]) -> dict[TrajectoryKey, list[float]]:
        """Return the advantages of the tokens of each turn, and of the trajectories that it called."""
        main = [0.0] * len(rollout.main.token_ids)
        called: dict[str, float] = {}
        for turn, value in zip(rollout.main.agent_turns, advantages, strict=True):
            main[turn.start : turn.end] = [value] * (turn.end - turn.start)
            called |= dict.fromkeys(turn.calls, value)
        found = {TrajectoryKey(rollout.id, rollout.main.id): main}
        if self.spec.others == "shared":
            found |= {
                TrajectoryKey(rollout.id, trajectory.id): list(on_agent_tokens(called[trajectory.id], trajectory))
                for trajectory in rollout.trajectories
                if trajectory.id in called
            }
        return found


def update_turn_advantages(groups: Sequence[Turns], spec: InformationGainSpec) -> list[Turns]:
    """Return the advantages of the turns of an update's groups, before muting and weighing.

    Args:
        groups: each trajectory's rewards by turn; the last is the outcome.
    """
    kinds = [_kinds(group, spec) for group in groups]
    overall = [_deviation([value for own in kinds for value in own[place]]) for place in range(len(kinds[0]))]
    found = []
    for group, own in zip(groups, kinds, strict=True):
        if not varied(group):
            found.append([[0.0] * len(turns) for turns in group])
            continue
        normalised = [_normalised(values, deviation, spec) for values, deviation in zip(own, overall, strict=True)]
        found.append([_discounted(turns, spec.discount) for turns in _reunited(group, normalised)])
    return found


def _kinds(group: Turns, spec: InformationGainSpec) -> list[list[float]]:
    """Return the sets of rewards that are normalised together: all rewards, or gains and outcomes separately."""
    if spec.normalization == "joint":
        return [[value for turns in group for value in turns]]
    return [[value for turns in group for value in turns[:-1]], [value for turns in group for value in turns[-1:]]]


def _reunited(group: Turns, kinds: Sequence[Sequence[float]]) -> Turns:
    """Return the values of ``_kinds`` by trajectory and turn; the inverse of ``_kinds``."""
    rest = [iter(values) for values in kinds]
    return [[next(rest[-1] if turn == len(turns) - 1 else rest[0]) for turn in range(len(turns))] for turns in group]


def _normalised(values: Sequence[float], overall: float, spec: InformationGainSpec) -> list[float]:
    if not varied(values):
        return [0.0] * len(values)
    mean = fmean(values)
    by = {"group": _deviation(values) + EPSILON, "batch": overall + EPSILON, "none": 1.0}[spec.scale]
    return [(value - mean) / by for value in values]


def _deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _discounted(turns: Sequence[float], discount: float) -> list[float]:
    sums: list[float] = []
    for value in reversed(turns):
        sums.append(value + discount * sums[-1] if sums else value)
    return sums[::-1]
