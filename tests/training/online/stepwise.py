"""A credit of two steps on the lucky words: the first half is worth what the policy goes on to make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from platform_sdk.records import Rollout, Trajectory
from platform_sdk.sampling.engine import Completion, SamplingParams
from platform_sdk.sampling.rollout import Agent, Gather
from platform_sdk.training.advantages import group_advantages, varied
from platform_sdk.training.credit import Advantages, Credit, CreditProbe, TrajectoryKey
from tests.training.online.lucky import LUCKY, WORDS

HALF = WORDS // 2
History = tuple[int, ...]


@dataclass(frozen=True)
class StepProgress(Credit):
    """The first words get the advantage of ``progress``, the rest that of ``reward``.

    ``progress`` is the lucky share of ``samples`` continuations of the first words; equal ones are sampled once.
    """

    samples: int = 2

    def prepare(self, group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
        params = SamplingParams(max_tokens=WORDS - HALF)
        asked = [(h, n) for h in dict.fromkeys(map(history, group)) for n in range(self.samples)]
        found: list[Completion] = yield Gather(
            tuple(probe.sample(h, params, group[0].question.id, *h, "sample", n) for h, n in asked)
        )
        by_name = dict(zip(asked, found, strict=True))
        return [recorded(one, [by_name[history(one), n] for n in range(self.samples)]) for one in group]

    def advantages(self, group: Sequence[Rollout]) -> Advantages:
        first = group_advantages([rollout.main.turns[-1].rewards["progress"] for rollout in group])
        rest = group_advantages([rollout.rewards["reward"] for rollout in group])
        return {
            TrajectoryKey(rollout.id, rollout.main.id): tuple(
                mask * (early if place < len(history(rollout)) else late)
                for place, mask in enumerate(rollout.main.agent_mask)
            )
            for rollout, early, late in zip(group, first, rest, strict=True)
        }

    def informative(self, group: Sequence[Rollout]) -> bool:
        return varied([rollout.rewards["reward"] for rollout in group])


def history(rollout: Rollout) -> History:
    """Return the prompt and the first half of the words."""
    return rollout.main.token_ids[: rollout.main.agent_mask.index(1) + HALF]


def recorded(rollout: Rollout, found: Sequence[Completion]) -> Rollout:
    begun = history(rollout)
    probes = tuple(
        Trajectory(
            role="probe", id=f"probe.{number}", token_ids=(*begun, *completion.token_ids),
            agent_mask=(0,) * len(begun) + (1,) * len(completion.token_ids),
            logprobs=(0.0,) * len(begun) + completion.logprobs, turns=(), use="scoring",
        )
        for number, completion in enumerate(found)
    )  # fmt: skip
    progress = sum(token in LUCKY for one in found for token in one.token_ids) / (len(found) * (WORDS - HALF))
    turn = rollout.main.turns[-1].model_copy(update={"rewards": {"progress": progress}})
    main = rollout.main.model_copy(update={"turns": (turn,)})
    rewards = rollout.rewards | {"progress": progress}
    return rollout.model_copy(update={"main": main, "others": probes, "rewards": rewards})
