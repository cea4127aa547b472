"""Advantages by hand, and what a credit may say."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from platform_sdk.config.credit import GdpoCreditSpec, GroupCreditSpec
from platform_sdk.errors import UserError
from platform_sdk.methods.selection import Acceptance
from platform_sdk.records import Question, Rollout, Trajectory, Turn
from platform_sdk.sampling.rollout import Agent, Gather
from platform_sdk.training.advantages import group_advantages, update_advantages, varied
from platform_sdk.training.credit import CreditProbe, GroupAdvantage, TrajectoryKey, turn_credits
from platform_sdk.training.examples import examples_of
from platform_sdk.training.online.preparation import prepare_groups, read_prepared

History = tuple[int, ...]


def test_group_advantages_by_hand_use_the_unbiased_deviation() -> None:
    # mean 2; squares 4, 0 and 4, over 3 - 1: a deviation of 2
    assert group_advantages([0.0, 2.0, 4.0]) == pytest.approx([-2 / 2.0001, 0.0, 2 / 2.0001])
    # mean 1/4; squares 3 · 1/16 and 9/16, over 3: a deviation of 1/2
    assert group_advantages([0.0, 1.0, 0.0, 0.0]) == pytest.approx(
        [-0.25 / 0.5001, 0.75 / 0.5001] + [-0.25 / 0.5001] * 2
    )
    assert group_advantages([13.0, 0.0]) == pytest.approx([6.5 / (sqrt(84.5) + 1e-4), -6.5 / (sqrt(84.5) + 1e-4)])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # means 3 and 1; the four rewards' mean is 2, their squares 1, 1, 1 and 9 over 3 (a variance of 4)
        ({"scale": "none"}, [[-2, 2], [0, 0]]),
        ({"scale": "batch"}, [[-2 / (2 + 1e-4), 2 / (2 + 1e-4)], [0, 0]]),
        ({"scale": "none", "baseline": "leave_one_out"}, [[1 - 5, 5 - 1], [0, 0]]),
        ({"scale": "none", "baseline": "none"}, [[1, 5], [1, 1]]),
        ({"scale": "none", "negative_weight": 0.0}, [[0, 2], [0, 0]]),
        ({}, [[-2 / (sqrt(8) + 1e-4), 2 / (sqrt(8) + 1e-4)], [0, 0]]),
    ],
)
def test_baselines_and_scales_by_hand(settings: dict[str, Any], expected: list[list[float]]) -> None:
    found = update_advantages([[1.0, 5.0], [1.0, 1.0]], GroupCreditSpec(**settings))
    assert found == [pytest.approx(values) for values in expected]


def test_leave_one_out_compares_with_the_mean_of_the_others() -> None:
    spec = GroupCreditSpec(baseline="leave_one_out", scale="none")
    assert group_advantages([0.0, 3.0, 6.0], spec) == pytest.approx([0 - 4.5, 3 - 3, 6 - 1.5])


@pytest.mark.parametrize("rewards", [[], [5.0], [0.1] * 7, [1e-9] * 3])
def test_equal_rewards_have_exactly_zero_advantage(rewards: list[float]) -> None:
    assert group_advantages(rewards) == [0.0] * len(rewards)
    assert not varied(rewards)


def trajectory(id: str, mask: tuple[int, ...], **changes: Any) -> Trajectory:
    return Trajectory(
        role="agent", id=id, token_ids=tuple(range(len(mask))), agent_mask=mask, logprobs=(-1.0,) * len(mask),
        turns=(), **changes,
    )  # fmt: skip


def rollout(attempt: int, **rewards: float) -> Rollout:
    """A main trajectory, another that it called, and one for scoring only."""
    return Rollout(
        question=Question(id="q", text="?", answers=("a",), dataset="d"), attempt=attempt, seed=0,
        main=trajectory("main", (0, 0, 1)),
        others=(trajectory("called", (0, 1, 0, 1)), trajectory("probe", (0, 1), use="scoring")),
        outcome="answered", rewards=rewards, weights="w", corpus="c",
    )  # fmt: skip


def test_all_agent_tokens_of_a_rollout_share_its_advantage() -> None:
    group = [rollout(attempt, reward=reward) for attempt, reward in enumerate((0.0, 2.0, 4.0))]
    credit, high = GroupAdvantage("reward"), 2 / 2.0001
    found = {example.id: example.advantages for example in examples_of(group, credit.advantages(group))}
    assert found == {
        "q#0/main": pytest.approx((0, 0, -high)),
        "q#0/called": pytest.approx((0, -high, 0, -high)),
        "q#1/main": (0, 0, 0),
        "q#1/called": (0, 0, 0, 0),
        "q#2/main": pytest.approx((0, 0, high)),
        "q#2/called": pytest.approx((0, high, 0, high)),
    }
    assert credit.informative(group)
    assert not credit.informative(group[:1])
    assert not credit.prepares


def test_called_trajectories_have_no_credit_or_that_of_their_own_reward() -> None:
    """The main ones are compared by 0 and 4; of the called ones the second's worth is unknown."""
    group = [rollout(0, reward=0.0, own=3.0), rollout(1, reward=9.0), rollout(2, reward=4.0, own=1.0)]
    group[1] = group[1].model_copy(update={"rewards": {"reward": 2.0}})
    unscaled = {"scale": "none"}
    none = GroupAdvantage("reward", GroupCreditSpec(others="none", **unscaled)).advantages(group)
    mains = {("q#0", "main"): (0, 0, -2), ("q#1", "main"): (0, 0, 0), ("q#2", "main"): (0, 0, 2)}
    assert none == mains
    own = GroupAdvantage("reward", GroupCreditSpec(others="own", **unscaled), lambda one, _: one.rewards.get("own"))
    assert own.advantages(group) == mains | {("q#0", "called"): (0, 1, 0, 1), ("q#2", "called"): (0, -1, 0, -1)}
    assert own.informative([group[0], group[0].model_copy(update={"rewards": {"reward": 0.0, "own": 1.0}})])


def test_groups_are_repeated_where_all_rewards_are_equal_or_only_where_all_are_0() -> None:
    def group(*rewards: float) -> list[Rollout]:
        return [rollout(attempt, reward=reward) for attempt, reward in enumerate(rewards)]

    equal, wrong = GroupAdvantage("reward"), GroupAdvantage("reward", GroupCreditSpec(resample="wrong"))
    assert [equal.repeats(group(*rewards)) for rewards in ((0, 0), (1, 1), (0, 1))] == [True, True, False]
    assert [wrong.repeats(group(*rewards)) for rewards in ((0, 0), (1, 1), (0, 1))] == [True, False, False]


def test_credit_without_a_rule_of_its_own_repeats_groups_that_it_cannot_learn_from() -> None:
    group = [rollout(attempt, f1=f1) for attempt, f1 in enumerate((0.2, 0.9))]
    assert [Acceptance("f1", threshold, 1).repeats(group) for threshold in (0.5, 1.0)] == [False, True]


def test_credits_of_turns_are_the_means_of_their_tokens_and_only_of_rollouts_that_have_any() -> None:
    turns = (
        Turn(speaker="agent", text="", start=0, end=2), Turn(speaker="environment", text="", start=2, end=3),
        Turn(speaker="agent", text="", start=3, end=4, rewards={"reward": 1.0}),
    )  # fmt: skip
    main = trajectory("main", (1, 1, 0, 1)).model_copy(update={"turns": turns})
    group = [rollout(attempt).model_copy(update={"main": main}) for attempt in (0, 1)]
    [found] = turn_credits(group, {TrajectoryKey(group[1].id, "main"): (1.0, 2.0, 0.0, -3.0)})
    assert found.rollout == group[1].id
    assert [(turn.advantage, turn.rewards) for turn in found.turns] == [(1.5, {}), (-3.0, {"reward": 1.0})]


def test_acceptance_gives_one_to_the_first_accepted_rollouts_and_nothing_to_others() -> None:
    group = [rollout(attempt, f1=f1) for attempt, f1 in enumerate((0.2, 0.9, 0.5, 1.0))]
    credit = Acceptance("f1", 0.5, accepted=2)
    assert {example.id: example.advantages for example in examples_of(group, credit.advantages(group))} == {
        "q#1/main": (0, 0, 1),
        "q#1/called": (0, 1, 0, 1),
        "q#2/main": (0, 0, 1),
        "q#2/called": (0, 1, 0, 1),
    }
    assert credit.informative(group)
    assert not credit.informative(group[:1])


@pytest.mark.parametrize(
    ("key", "advantages", "fault"),
    [
        (("q#0", "probe"), (0.0, 1.0), "rollout q#0, trajectory probe: there is no such trajectory to train on"),
        (("q#1", "main"), (0.0, 0.0, 1.0), "rollout q#1, trajectory main: there is no such"),
        (("q#0", "main"), (0.0, 1.0), "2 advantages for 3 tokens"),
        (("q#0", "main"), (0.0, 1.0, 1.0), "0 off the agent's tokens"),
        (("q#0", "main"), (0.0, 0.0, inf), "must be finite"),
    ],
)
def test_credit_that_does_not_fit_is_refused(key: tuple[str, str], advantages: Sequence[float], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        examples_of([rollout(0)], {TrajectoryKey(*key): advantages})


def test_missing_reward_is_reported_with_the_available_ones() -> None:
    with pytest.raises(UserError, match=r"q#0 has no reward 'bonus' \(it has em, f1\)"):
        GroupAdvantage("bonus").advantages([rollout(0, em=1.0, f1=1.0)])


def test_missing_reward_of_gdpo_is_reported_with_its_setting() -> None:
    spec = GdpoCreditSpec(type="gdpo", weights={"em": 1.0, "bonus": 0.5})
    with pytest.raises(UserError, match=r"no reward 'bonus' \(it has em, f1\); .* in online.credit.weights"):
        GroupAdvantage("em", spec).advantages([rollout(0, em=1.0, f1=1.0)])


def test_duplicate_rollout_is_refused() -> None:
    group = [rollout(3, reward=1.0), rollout(3, reward=0.0)]
    with pytest.raises(UserError, match="q#3 is given twice"):
        examples_of(group, GroupAdvantage("reward").advantages(group))


def test_scores_for_several_groups_are_asked_for_together_and_counted(tmp_path: Path) -> None:
    asked: list[int] = []

    class Engine:
        def score(self, prompts: Sequence[History], continuations: Sequence[History]) -> list[tuple[float, ...]]:
            asked.append(len(prompts))
            return [
                tuple(-float(len(prompt)) for _ in said) for prompt, said in zip(prompts, continuations, strict=True)
            ]

        def release(self, dialogue: str) -> None: ...

    class GoldLikelihood(GroupAdvantage):
        def prepare(self, group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
            [logprobs] = yield Gather((probe.score(group[0].main.token_ids, (7, 8)),))
            return [one.model_copy(update={"rewards": {**one.rewards, "gold": fmean(logprobs)}}) for one in group]

    first = rollout(0, reward=1.0)
    second = first.model_copy(update={"question": first.question.model_copy(update={"id": "p"})})
    engine: Any = Engine()
    path, probe = tmp_path / "prepared.jsonl", CreditProbe(engine, "online-0001")
    prepare_groups(path, [[first], [second]], GoldLikelihood("reward"), probe, live=2, description="")
    assert asked == [2]
    found = read_prepared(path, [[first], [second]])
    assert [(one.requests, one.tokens, one.rollouts[0].rewards["gold"]) for one in found.values()] == [(1, 2, -3.0)] * 2


def test_seeds_follow_from_names() -> None:
    engine: Any = None
    names = [("online-0001", "q", 0), ("online-0001", "q", 1), ("online-0002", "q", 0)]
    assert len({CreditProbe(engine, name).seed(*parts) for name, *parts in names}) == 3
    assert CreditProbe(engine, "a").seed("q", 0) == CreditProbe(engine, "a").seed("q", 0)
