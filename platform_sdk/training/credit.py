"""Credit: the advantage of every sampled token of a method's rollouts.

Each method has a ``Credit``, which the online loop calls. This module does not import torch, so methods can import it.
``GroupAdvantage`` is GRPO's credit: a rollout's reward relative to the other attempts at its question.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from platform_sdk.config.credit import AdvantageSpec, GdpoCreditSpec, GroupCreditSpec
from platform_sdk.errors import UserError
from platform_sdk.records import Rollout, Trajectory
from platform_sdk.sampling.engine import Completion, SamplingEngine, SamplingParams
from platform_sdk.sampling.rollout import Agent, Call, Generate, SearchFunction, no_search
from platform_sdk.sampling.seeds import seed_of
from platform_sdk.tracking.credit import RolloutCredit, TurnCredit
from platform_sdk.training.advantages import GRPO, gdpo_advantages, update_advantages, varied


class TrajectoryKey(NamedTuple):
    """The ids of a rollout and of one of its trajectories."""

    rollout: str
    trajectory: str


Advantages = Mapping[TrajectoryKey, Sequence[float]]


class Credit(ABC):
    """Assignment of advantages to the tokens of a group (the attempts at one question)."""

    def prepare(self, group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
        """Sample or score further data for the advantages, with the weights that sampled the group.

        This is an agent: groups are prepared concurrently. It returns the group with additional rewards and additional
        trajectories (``use: scoring``, or ``branch`` to train on them); everything else must stay unchanged. The result
        is stored and not recomputed on resumption. Sample only through ``probe``. By default nothing is prepared.
        """
        yield from ()
        return group

    @abstractmethod
    def advantages(self, group: Sequence[Rollout]) -> Advantages:
        """Return an advantage per token, 0 except for agent tokens; absent trajectories are not trained on."""

    def update_advantages(self, groups: Sequence[Sequence[Rollout]]) -> list[Advantages]:
        """Return the advantages of each group of an update; by default each group's separately."""
        return [self.advantages(group) for group in groups]

    def informative(self, group: Sequence[Rollout]) -> bool:
        """Return True if the sampled or prepared group has a training signal; by default any advantage.

        Rewards that ``prepare`` adds count as 0 in an unprepared group.
        """
        return any(any(values) for values in self.advantages(group).values())

    def repeats(self, group: Sequence[Rollout]) -> bool:
        """Return True to sample the group again, or another instead; by default if it has no training signal."""
        return not self.informative(group)

    @property
    def prepares(self) -> bool:
        return type(self).prepare is not Credit.prepare


@dataclass(frozen=True)
class CreditProbe:
    """Extra sampling for ``Credit.prepare``; its methods are agents for ``yield from`` or ``Gather``.

    Attributes:
        name: name unique to the update; all seeds depend on it.
        search: the search of the run's agents.
    """

    engine: SamplingEngine
    name: str
    search: SearchFunction = no_search

    @property
    def tokenizer(self) -> Any:
        return self.engine.tokenizer

    def seed(self, *parts: str | int) -> int:
        """Return the seed of a draw by its name; ``parts`` must be unique within the update."""
        return seed_of(self.name, "credit", *parts)

    def sample(
        self, prompt: Sequence[int], params: SamplingParams, *parts: str | int, role: str = "", thread: str = ""
    ) -> Agent[Completion]:
        """Sample a completion with the seed of the name ``parts``.

        Args:
            thread: the dialogue that the prompt continues, for the engine's prefix cache; by default a new one.

        Raises:
            PromptTooLong: the prompt leaves no room for a token.
        """
        seeded = SamplingParams(**{**vars(params), "seed": self.seed(*parts)})
        dialogue = thread or "/".join(map(str, parts))
        completion: Completion = yield Generate(prompt, seeded, f"credit/{dialogue}", role)
        return completion

    def score(self, prompt: Sequence[int], continuation: Sequence[int]) -> Agent[tuple[float, ...]]:
        """Return the log-probability of each token of ``continuation`` after ``prompt``."""
        [logprobs] = yield Call(self.scores, ((prompt, continuation),))
        return tuple(logprobs)

    def scores(self, items: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, ...]]:
        """Score pairs of prompt and continuation together."""
        return self.engine.score([prompt for prompt, _ in items], [continuation for _, continuation in items])


@dataclass(frozen=True)
class GroupAdvantage(Credit):
    """Credit by comparison within the group: all agent tokens of a trajectory share one advantage.

    The default ``spec`` is GRPO (Shao et al., DeepSeekMath, 2024, section 4.1.2): all trajectories of a rollout have
    its advantage; the deviation is unbiased and 1e-4 keeps the quotient finite, as in ARENA's published code and TRL.
    ``docs/grpo.md`` gives the sources of the other settings.

    Attributes:
        reward: the name of the trained reward; GDPO uses the rewards of ``spec.weights`` instead.
        worth: returns a called trajectory's reward, for ``others: own``; None excludes the trajectory from training.
            The reward is compared with the rewards of all called trajectories of the group.
    """

    reward: str
    spec: GroupCreditSpec | GdpoCreditSpec = GRPO
    worth: Callable[[Rollout, Trajectory], float | None] | None = None

    def advantages(self, group: Sequence[Rollout]) -> Advantages:
        [found] = self.update_advantages([group])
        return found

    def update_advantages(self, groups: Sequence[Sequence[Rollout]]) -> list[Advantages]:
        quiet = [muted(group, self.spec) for group in groups]
        main = [_silenced(values, mute) for values, mute in zip(self._main(groups), quiet, strict=True)]
        found = [
            {
                TrajectoryKey(rollout.id, trajectory.id): on_agent_tokens(value, trajectory)
                for rollout, value in zip(group, values, strict=True)
                for trajectory in (rollout.trajectories if self.spec.others == "shared" else [rollout.main])
            }
            for group, values in zip(groups, main, strict=True)
        ]
        if not isinstance(self.spec, GroupCreditSpec) or self.spec.others != "own":
            return [*found]
        called = [[each for rollout in group for each in self._worths(rollout)] for group in groups]
        own = update_advantages([[worth for _, _, worth in each] for each in called], self.spec)
        own = [_silenced(values, mute) for values, mute in zip(own, quiet, strict=True)]
        return [
            shared
            | {
                TrajectoryKey(rollout.id, trajectory.id): on_agent_tokens(value, trajectory)
                for (rollout, trajectory, _), value in zip(each, values, strict=True)
            }
            for shared, each, values in zip(found, called, own, strict=True)
        ]

    def repeats(self, group: Sequence[Rollout]) -> bool:
        return not self.informative(group) if self.spec.resample == "equal" else not any(rewards_of(group, self.reward))

    def _main(self, groups: Sequence[Sequence[Rollout]]) -> list[list[float]]:
        """Return the advantages of the main trajectories."""
        if isinstance(self.spec, GdpoCreditSpec):
            return gdpo_advantages(
                [
                    {name: rewards_of(group, name, "online.credit.weights") for name in self.spec.weights}
                    for group in groups
                ],
                self.spec,
            )
        return update_advantages([rewards_of(group, self.reward) for group in groups], self.spec)

    def _worths(self, rollout: Rollout) -> Iterator[tuple[Rollout, Trajectory, float]]:
        """Yield the called trajectories with a separate reward."""
        assert self.worth is not None
        for trajectory in rollout.trajectories:
            if trajectory is not rollout.main and (worth := self.worth(rollout, trajectory)) is not None:
                yield rollout, trajectory, worth


def muted(group: Sequence[Rollout], spec: AdvantageSpec) -> bool:
    """Return True if the attempts tie in the outcome ``spec.mute_ties_of``, so the group has no advantages."""
    return spec.mute_ties_of is not None and not varied(
        [reward_of(rollout, spec.mute_ties_of, "credit.mute_ties_of") for rollout in group]
    )


def _silenced(values: Sequence[float], mute: bool) -> list[float]:
    return [0.0] * len(values) if mute else list(values)


def on_agent_tokens(value: float, trajectory: Trajectory) -> tuple[float, ...]:
    """Return an advantage for each of a trajectory's agent tokens, and 0 for its other tokens."""
    return tuple(float(mask) * value for mask in trajectory.agent_mask)


def turn_credits(group: Sequence[Rollout], advantages: Advantages) -> Iterator[RolloutCredit]:
    """Yield the credit of each rollout's turns, except for rollouts whose main trajectory is not trained on."""
    for rollout in group:
        values = advantages.get(TrajectoryKey(rollout.id, rollout.main.id))
        if values is not None:
            yield RolloutCredit(
                rollout=rollout.id,
                turns=tuple(
                    TurnCredit(rewards=turn.rewards, advantage=fmean(values[turn.start : turn.end] or [0.0]))
                    for turn in rollout.main.agent_turns
                ),
            )


def rewards_of(group: Sequence[Rollout], name: str, setting: str = "online.reward") -> list[float]:
    """Return the named reward of each rollout of a group; see ``reward_of``."""
    return [reward_of(rollout, name, setting) for rollout in group]


def reward_of(rollout: Rollout, name: str, setting: str = "online.reward") -> float:
    """Return a rollout's named reward.

    Args:
        setting: the setting that names the reward, for the message.

    Raises:
        UserError: the rollout has no such reward.
    """
    if name not in rollout.rewards:
        raise UserError(
            f"rollout {rollout.id} has no reward {name!r} (it has {', '.join(rollout.rewards) or 'none'}); "
            f"name one of these in {setting}"
        )
    return rollout.rewards[name]
