"""Selection of near-optimal trajectories: attempts per question, acceptance, and the rising threshold.

MyGO's iteration (Mujica-MyGO, section 3.3 and appendices D.1, D.3), for every agent whose rollouts have F1 and EM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.config.selection import NO_OWN_REWARD, SelectionSpec
from platform_sdk.config.struct import Struct
from platform_sdk.errors import UserError
from platform_sdk.methods.method import (
    A,
    RunContext,
    Sampling,
    SamplingOutcome,
    SamplingStep,
    SelectionOutcome,
    open_search,
)
from platform_sdk.records import Question, Rollout
from platform_sdk.run_dir import PhaseDir
from platform_sdk.sampling.rollout import Agent, Gather
from platform_sdk.sampling.sampler import RolloutAgent, RolloutSampler, open_sampler
from platform_sdk.training.credit import Advantages, Credit, TrajectoryKey, reward_of
from platform_sdk.training.online.questions import taken_up

PERFECT = 1.0
"""r_sup: the maximum reward; F1 and EM are at most 1."""

MakeAgent = Callable[[RunContext[A], Policy, Decoding, str, Any], RolloutAgent]
"""Make the agent of a run from a policy, a sampling distribution, a seed name, and opened resources."""
Open = Callable[[RunContext[A]], AbstractContextManager[Any]]
"""Open the resources of a run's agents."""


class Threshold(Struct):
    """K of the last iteration; None before the first one, which begins with the recipe's."""

    threshold: float | None = None


class Iteration(SamplingStep[A, SelectionSpec, Threshold]):
    """An iteration of MyGO (Mujica-MyGO, section 3.3 and appendices D.1, D.3) with a method's own agent.

    Args:
        agent: makes the agent, from the resources that ``opened`` opens: by default the search.
    """

    settings = SelectionSpec
    carry = Threshold

    def __init__(self, agent: MakeAgent[A], opened: Open[A] | None = None) -> None:
        self._agent, self._opened = agent, opened

    def sample(self, round: Sampling[A, SelectionSpec, Threshold]) -> SamplingOutcome[Threshold]:
        run, spec = round.run, round.settings
        if spec.reward == "own" and getattr(run.agent, "reward", None) is None:  # not every agent has this setting
            raise UserError(f"selection.reward {NO_OWN_REWARD}")
        before = spec.initial_threshold if round.carry.threshold is None else round.carry.threshold
        questions = batch_of(run.questions("train"), round.iteration, spec.questions, run.seed)
        with open_phase(round, self._agent, self._opened) as phase:
            mean_reward, threshold = sample_iteration(phase, questions, before, spec)
        return SamplingOutcome(
            phase.ordered(questions),
            [question.id for question in questions],
            Threshold(threshold=threshold),
            figures={"mean_reward": mean_reward, "threshold": threshold},
            seconds=phase.seconds,
        )

    def select(
        self, settings: SelectionSpec, carry: Threshold, rollouts: Sequence[Rollout], candidates: Sequence[Rollout]
    ) -> SelectionOutcome:
        assert carry.threshold is not None, "an iteration hands on the threshold that it ended with"
        chosen = select(candidates, settings.reward, carry.threshold, settings.accepted)
        return SelectionOutcome(chosen, acceptance(rollouts, settings.reward, carry.threshold))


@contextmanager
def open_phase(
    round: Sampling[A, Any, Any], agent: MakeAgent[A], opened: Open[A] | None = None
) -> Iterator[RolloutSampler]:
    """Open the agents' resources and the engine of a round, and the file of its rollouts."""
    run = round.run

    path = PhaseDir(round.folder).rollouts
    with (opened or open_search)(run) as resources:

        def make_agent(tokenizer: Any, weights: str) -> RolloutAgent:
            return agent(run, Policy(tokenizer, weights), run.decoding, round.phase, resources)

        with open_sampler(path, run.sampling.engine, round.model, make_agent) as phase:
            yield phase


def raised_threshold(threshold: float, mean_reward: float, spec: SelectionSpec) -> float:
    """K ← max(K, (r̄ + r_sup)/2), capped at ``threshold_cap``; it never falls.

    The paper prints (r̄/r_sup + 1)·r_sup, which is never below r_sup, so nothing would ever be accepted. This project
    uses the midpoint between the policy's mean reward and the maximum reward instead.
    """
    if spec.threshold == "fixed":
        return threshold
    return max(threshold, min((mean_reward + PERFECT) / 2, spec.threshold_cap))


def next_attempts(rewards: Mapping[int, float], threshold: float, accepted: int, limit: int) -> list[int]:
    """Return the attempts at a question to make next; none when it is done.

    A question is attempted once (the first pass), then in waves: each wave has as many attempts as accepted
    trajectories are missing, until the question has ``accepted`` of them or has used ``limit`` attempts. So the samples
    depend only on rewards, not on timing, and an interrupted wave is completed with its missing attempts.

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


def acceptance(rollouts: Sequence[Rollout], reward: str, threshold: float) -> dict[str, Any]:
    """Return how many rollouts reached the threshold, and how many attempts their questions took."""
    accepted = [rollout for rollout in rollouts if rollout.rewards[reward] >= threshold]
    tried = Counter(rollout.question.id for rollout in rollouts)
    return {
        "acceptance_rate": len(accepted) / len(rollouts),
        "attempts_histogram": {str(n): count for n, count in sorted(Counter(tried.values()).items())},
        "questions": len(tried),
        "questions_without_accepted": len(tried) - len({rollout.question.id for rollout in accepted}),
    }


def batch_of(questions: Sequence[Question], iteration: int, size: int, seed: int) -> list[Question]:
    """Return the questions of an iteration, from 1."""
    return taken_up(questions, iteration, size, lambda turn: f"iterations {turn} {seed}")


def sample_iteration(
    phase: RolloutSampler, questions: Sequence[Question], threshold: float, spec: SelectionSpec
) -> tuple[float, float]:
    """Sample an iteration of MyGO.

    Returns:
        r̄, the mean reward of the first pass, and K, the threshold that followed from it.
    """
    phase.once(questions, 0, "first pass")
    firsts = [phase.done[q.id][0].rewards[spec.reward] for q in questions]
    mean_reward = sum(firsts) / len(firsts)
    threshold = raised_threshold(threshold, mean_reward, spec)

    def more(question: Question) -> Agent[None]:
        while wave := next_attempts(phase.rewards(question, spec.reward), threshold, spec.accepted, spec.attempts):
            yield Gather(tuple(phase.attempt(question, number) for number in wave))

    unfinished = [
        q for q in questions if next_attempts(phase.rewards(q, spec.reward), threshold, spec.accepted, spec.attempts)
    ]
    phase.play([partial(more, question) for question in unfinished], "more attempts", unit="question")
    return mean_reward, threshold
