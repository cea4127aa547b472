"""Credit: the advantage of every token that a method's rollouts were sampled with.

A method owns a ``Credit``; the online loop asks it what to learn from. Free of torch, so that recipes can import it.
``GroupAdvantage`` is GRPO's: a rollout's reward compared with those of the other attempts at its question.
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
    """Assigns advantages to the tokens of a group: the attempts at one question that are compared."""

    def prepare(self, group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
        """Sample or score whatever else the advantages need, with the weights that sampled the group.

        An agent, as those that made the rollouts: groups are prepared side by side. Its return value is the group with
        further trajectories for scoring only and further named rewards; all else stays. It is stored, and not repeated
        when the run is resumed. Draw nothing from anywhere but ``probe``. The default prepares nothing.
        """
        yield from ()
        return group

    @abstractmethod
    def advantages(self, group: Sequence[Rollout]) -> Advantages:
        """Return one advantage per token of a trajectory, 0 off the agent's; absent trajectories are not trained on."""

    def update_advantages(self, groups: Sequence[Sequence[Rollout]]) -> list[Advantages]:
        """Return the advantages of each group of an update; by default what the group by itself has."""
        return [self.advantages(group) for group in groups]

    @abstractmethod
    def informative(self, group: Sequence[Rollout]) -> bool:
        """Return whether the group, as it was sampled or prepared, teaches anything."""

    def repeats(self, group: Sequence[Rollout]) -> bool:
        """Return whether the group, as it was sampled, is to be sampled again; by default if it teaches nothing."""
        return not self.informative(group)

    @property
    def prepares(self) -> bool:
        return type(self).prepare is not Credit.prepare


@dataclass(frozen=True)
class CreditProbe:
    """Extra sampling for ``Credit.prepare``: its methods are agents, to be run by ``yield from`` or ``Gather``.

    Attributes:
        name: unique to the update; all seeds depend on it.
        search: the search of the run's agents.
    """

    engine: SamplingEngine
    name: str
    search: SearchFunction = no_search

    @property
    def tokenizer(self) -> Any:
        return self.engine.tokenizer

    def seed(self, *parts: str | int) -> int:
        """Return the seed of a draw from its name: ``parts`` that no other draw of the update has."""
        return seed_of(self.name, "credit", *parts)

    def sample(
        self, prompt: Sequence[int], params: SamplingParams, *parts: str | int, role: str = "", thread: str = ""
    ) -> Agent[Completion]:
        """Sample one completion, with the seed of the name ``parts``.

        Args:
            thread: names the dialogue that the prompt continues, whose reading the engine may keep; by default the
                completion has one of its own.

        Raises:
            PromptTooLong: the prompt leaves no room for a token.
        """
        seeded = SamplingParams(**{**vars(params), "seed": self.seed(*parts)})
        dialogue = thread or "/".join(map(str, parts))
        completion: Completion = yield Generate(prompt, seeded, f"credit/{dialogue}", role)
        return completion

    def score(self, prompt: Sequence[int], continuation: Sequence[int]) -> Agent[tuple[float, ...]]:
        """Return the log-probability of each token of ``continuation`` behind ``prompt``."""
        [logprobs] = yield Call(self.scores, ((prompt, continuation),))
        return tuple(logprobs)

    def scores(self, items: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, ...]]:
        """Score pairs of prompt and continuation together."""
        return self.engine.score([prompt for prompt, _ in items], [continuation for _, continuation in items])


@dataclass(frozen=True)
class GroupAdvantage(Credit):
    """Credit by comparison within the group: all agent tokens of a trajectory share one advantage.

    With the default ``spec`` it is GRPO's (Shao et al., DeepSeekMath, 2024, section 4.1.2): the rollout's advantage
    for all of its trajectories; the deviation is the unbiased one and 1e-4 keeps the quotient finite, as in ARENA's
    published code and TRL. ``docs/grpo.md`` says whose the other settings are.

    Attributes:
        reward: the name of the trained reward; GDPO trains for those of ``spec.weights`` instead.
        worth: a called trajectory's own reward, for ``others: own``; None where nothing can be said, and the trajectory
            is not trained on. It is compared with those of all called trajectories of the group.
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
                TrajectoryKey(rollout.id, trajectory.id): _spread(value, trajectory)
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
                TrajectoryKey(rollout.id, trajectory.id): _spread(value, trajectory)
                for (rollout, trajectory, _), value in zip(each, values, strict=True)
            }
            for shared, each, values in zip(found, called, own, strict=True)
        ]

    def informative(self, group: Sequence[Rollout]) -> bool:
        return any(any(values) for values in self.advantages(group).values())

    def repeats(self, group: Sequence[Rollout]) -> bool:
        return not self.informative(group) if self.spec.resample == "equal" else not any(rewards_of(group, self.reward))

    def _main(self, groups: Sequence[Sequence[Rollout]]) -> list[list[float]]:
        """Return the advantages of the main trajectories."""
        if isinstance(self.spec, GdpoCreditSpec):
            return gdpo_advantages(
                [{name: rewards_of(group, name) for name in self.spec.weights} for group in groups], self.spec
            )
        return update_advantages([rewards_of(group, self.reward) for group in groups], self.spec)

    def _worths(self, rollout: Rollout) -> Iterator[tuple[Rollout, Trajectory, float]]:
        """Yield the called trajectories that have a reward of their own."""
        assert self.worth is not None
        for trajectory in rollout.trajectories:
            if trajectory is not rollout.main and (worth := self.worth(rollout, trajectory)) is not None:
                yield rollout, trajectory, worth


def muted(group: Sequence[Rollout], spec: AdvantageSpec) -> bool:
    """Return whether the group has no advantages since its attempts are equal in the outcome ``spec.mute_ties_of``."""
    return spec.mute_ties_of is not None and not varied(
        [reward_of(rollout, spec.mute_ties_of, "credit.mute_ties_of") for rollout in group]
    )


def _silenced(values: Sequence[float], mute: bool) -> list[float]:
    return [0.0] * len(values) if mute else list(values)


def _spread(value: float, trajectory: Trajectory) -> tuple[float, ...]:
    return tuple(float(mask) * value for mask in trajectory.agent_mask)


def turn_credits(group: Sequence[Rollout], advantages: Advantages) -> Iterator[RolloutCredit]:
    """Yield the credit of each rollout's turns; rollouts whose main trajectory is not trained on are left out."""
    for rollout in group:
        values = advantages.get(TrajectoryKey(rollout.id, rollout.main.id))
        if values is not None:
            yield RolloutCredit(
                rollout=rollout.id,
                turns=tuple(
                    TurnCredit(rewards=turn.rewards, advantage=fmean(values[turn.start : turn.end] or [0.0]))
                    for turn in rollout.main.turns
                    if turn.speaker == "agent"
                ),
            )


def rewards_of(group: Sequence[Rollout], name: str) -> list[float]:
    """Return the named reward of each rollout of a group."""
    return [reward_of(rollout, name) for rollout in group]


def reward_of(rollout: Rollout, name: str, setting: str = "online.reward") -> float:
    """Return a rollout's named reward.

    Args:
        setting: which setting names it.

    Raises:
        UserError: it has no such reward.
    """
    if name not in rollout.rewards:
        raise UserError(
            f"rollout {rollout.id} has no reward {name!r} (it has {', '.join(rollout.rewards) or 'none'}); "
            f"name one of these in {setting}"
        )
    return rollout.rewards[name]
