"""Credit: the advantage of every token that a method's rollouts were sampled with.

A method owns a ``Credit``; the online loop asks it what to learn from. Free of torch, so that recipes can import it.
``GroupAdvantage`` is GRPO's: a rollout's reward compared with those of the other attempts at its question.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

from platform_sdk.errors import UserError
from platform_sdk.records import Rollout
from platform_sdk.sampling.engine import Completion, SamplingEngine, SamplingParams
from platform_sdk.sampling.rollout import Agent, Consult, Generate
from platform_sdk.sampling.seeds import seed_of

EPSILON = 1e-4


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

    @abstractmethod
    def informative(self, group: Sequence[Rollout]) -> bool:
        """Return whether the group teaches anything.

        Asked of a group as it was sampled, to sample it again if not, and of the prepared one, for ``zero_variance``.
        """

    @property
    def prepares(self) -> bool:
        return type(self).prepare is not Credit.prepare


@dataclass(frozen=True)
class CreditProbe:
    """Extra sampling for ``Credit.prepare``: its methods are agents, to be run by ``yield from`` or ``Together``.

    Attributes:
        name: unique to the update; all seeds depend on it.
    """

    engine: SamplingEngine
    name: str

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
        logprobs: tuple[float, ...] = yield Consult(self.scores, (prompt, continuation))
        return logprobs

    def scores(self, items: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, ...]]:
        """Score pairs of prompt and continuation together."""
        return self.engine.score([prompt for prompt, _ in items], [continuation for _, continuation in items])


@dataclass(frozen=True)
class GroupAdvantage(Credit):
    """GRPO's credit: all agent tokens of a rollout share its advantage within its group.

    Source: Shao et al., DeepSeekMath (2024), section 4.1.2; the deviation is the unbiased one and 1e-4 keeps the
    quotient finite, as in ARENA's published code.
    """

    reward: str

    def advantages(self, group: Sequence[Rollout]) -> Advantages:
        values = group_advantages(self._rewards(group))
        return {
            TrajectoryKey(rollout.id, trajectory.id): tuple(float(mask) * value for mask in trajectory.agent_mask)
            for rollout, value in zip(group, values, strict=True)
            for trajectory in rollout.trajectories
        }

    def informative(self, group: Sequence[Rollout]) -> bool:
        return varied(self._rewards(group))

    def _rewards(self, group: Sequence[Rollout]) -> list[float]:
        return [reward_of(rollout, self.reward) for rollout in group]


def reward_of(rollout: Rollout, name: str) -> float:
    """Return a rollout's named reward.

    Raises:
        UserError: it has no such reward.
    """
    if name not in rollout.rewards:
        raise UserError(
            f"rollout {rollout.id} has no reward {name!r} (it has {', '.join(rollout.rewards) or 'none'}); "
            "name one of these in online.reward"
        )
    return rollout.rewards[name]


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """Return (r - mean) / (std + 1e-4) for the rewards of a group; exactly zero where all are equal."""
    if not varied(rewards):
        return [0.0] * len(rewards)
    mean, deviation = fmean(rewards), stdev(rewards)
    return [(reward - mean) / (deviation + EPSILON) for reward in rewards]


def varied(rewards: Sequence[float]) -> bool:
    """Return whether the rewards are not all equal."""
    return any(reward != rewards[0] for reward in rewards)
