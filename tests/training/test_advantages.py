from __future__ import annotations

from math import sqrt

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.records import Question, Rollout, Trajectory
from platform_sdk.training.advantages import advantages_of, group_advantages, varied


def test_by_hand_with_the_unbiased_deviation() -> None:
    # mean 2; squares 4, 0 and 4, over 3 - 1: a deviation of 2
    assert group_advantages([0.0, 2.0, 4.0]) == pytest.approx([-2 / 2.0001, 0.0, 2 / 2.0001])
    # mean 1/4; squares 3 · 1/16 and 9/16, over 3: a deviation of 1/2
    assert group_advantages([0.0, 1.0, 0.0, 0.0]) == pytest.approx(
        [-0.25 / 0.5001, 0.75 / 0.5001] + [-0.25 / 0.5001] * 2
    )
    assert group_advantages([13.0, 0.0]) == pytest.approx([6.5 / (sqrt(84.5) + 1e-4), -6.5 / (sqrt(84.5) + 1e-4)])


@pytest.mark.parametrize("rewards", [[], [5.0], [0.1] * 7, [1e-9] * 3])
def test_nothing_to_compare_is_exactly_zero(rewards: list[float]) -> None:
    assert group_advantages(rewards) == [0.0] * len(rewards)
    assert not varied(rewards)


def rollout(question: str, attempt: int, **rewards: float) -> Rollout:
    agent = Trajectory(role="agent", id="agent", token_ids=(0, 1), agent_mask=(0, 1), logprobs=(0.0, -1.0), turns=())
    return Rollout(
        question=Question(id=question, text="?", answers=("a",), dataset="d"), attempt=attempt, seed=0, main=agent,
        outcome="answered", rewards=rewards, weights="w", corpus="c",
    )  # fmt: skip


def test_groups_never_mix() -> None:
    """The second question's rewards, a hundred times as high, leave the first one's advantages alone."""
    one = [rollout("one", i, reward=float(r), em=0.0) for i, r in enumerate((0, 2, 4))]
    two = [rollout("two", i, reward=100.0 * r, em=1.0) for i, r in enumerate((3, 0, 3, 3))]
    mixed = [two[0], one[0], one[1], two[1], two[2], one[2], two[3]]
    found = advantages_of(mixed, "reward")
    assert [found[r.id] for r in one] == pytest.approx([-2 / 2.0001, 0.0, 2 / 2.0001])
    assert [found[r.id] for r in two] == pytest.approx([75 / 150.0001, -225 / 150.0001] + [75 / 150.0001] * 2)
    assert set(advantages_of(mixed, "em").values()) == {0.0}


def test_a_missing_reward_is_said_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"one#0 has no reward 'bonus' \(it has em, f1\)"):
        advantages_of([rollout("one", 0, em=1.0, f1=1.0)], "bonus")


def test_a_rollout_counts_once() -> None:
    with pytest.raises(UserError, match="one#3 comes twice"):
        advantages_of([rollout("one", 3, reward=1.0), rollout("one", 3, reward=0.0)], "reward")
