"""The threshold, the attempts and the selection of MyGO, against numbers worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_sdk.config.selection import SelectionSpec
from platform_sdk.methods.selection import acceptance, batch_of, next_attempts, raised_threshold, select
from platform_sdk.records import Question, Rollout, Trajectory

EMPTY = Trajectory(id="planner", role="planner", token_ids=(), agent_mask=(), logprobs=(), turns=())


def question(id: str) -> Question:
    return Question(id=id, text="?", answers=("x",), dataset="world")


def rollout(id: str, attempt: int, f1: float) -> Rollout:
    return Rollout(
        question=question(id), attempt=attempt, seed=0, main=EMPTY, outcome="answered",
        rewards={"f1": f1}, weights="w", corpus="c",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("k", "mean", "cap", "expected"),
    [
        (0.5, 0.4, 1.0, 0.7),  # (0.4 + 1) / 2
        (0.8, 0.4, 1.0, 0.8),  # never falls
        (0.0, 0.0, 1.0, 0.5),
        (0.5, 1.0, 1.0, 1.0),  # a perfect policy: only perfect answers
        (0.5, 1.0, 0.9, 0.9),  # capped
        (0.95, 1.0, 0.9, 0.95),  # the cap does not let K fall
    ],
)
def test_threshold_rises_to_the_midpoint_and_never_falls(k: float, mean: float, cap: float, expected: float) -> None:
    spec = SelectionSpec(initial_threshold=0.5, threshold_cap=cap)
    assert raised_threshold(k, mean, spec) == pytest.approx(expected)
    assert raised_threshold(k, mean, spec.model_copy(update={"threshold": "fixed"})) == k


def test_attempts_by_hand() -> None:
    # m = 3, at most 8 attempts, K = 0.8.
    def more(rewards: dict[int, float]) -> list[int]:
        return next_attempts(rewards, 0.8, accepted=3, limit=8)

    assert more({}) == [0]
    assert more({0: 1.0}) == [1, 2]  # one accepted, two missing
    assert more({0: 0.0}) == [1, 2, 3]
    assert more({0: 1.0, 2: 1.0}) == [1]  # a killed wave is completed first
    assert more({0: 1.0, 1: 0.5, 2: 1.0}) == [3]
    assert more({0: 1.0, 1: 0.8, 2: 1.0}) == []  # K itself is enough
    assert more(dict.fromkeys(range(7), 0.0)) == [7]  # waves of 1, 3, 3, then the limit
    assert more(dict.fromkeys(range(8), 0.0)) == []


@given(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=20, max_size=20), st.integers(1, 4), st.integers(1, 20), st.data()
)
def test_interrupted_wave_ends_with_the_same_attempts(
    rewards: list[float], m: int, limit: int, data: st.DataObject
) -> None:
    def run_to_the_end(done: dict[int, float], interrupt: bool) -> dict[int, float]:
        while wave := next_attempts(done, 1.0, m, limit):
            finished = data.draw(st.lists(st.sampled_from(wave), min_size=1, unique=True)) if interrupt else wave
            done |= {attempt: rewards[attempt] for attempt in finished}
        return done

    undisturbed = run_to_the_end({}, interrupt=False)
    assert run_to_the_end({}, interrupt=True) == undisturbed
    assert set(undisturbed) == set(range(len(undisturbed)))
    assert len(undisturbed) <= limit
    assert sum(undisturbed.values()) <= m


def test_selection_takes_the_first_accepted_of_each_question() -> None:
    rollouts = [
        rollout("a", 0, 0.9),
        rollout("a", 1, 1.0),
        rollout("a", 2, 0.95),
        rollout("b", 0, 0.3),
        rollout("b", 1, 0.9),
    ]
    chosen = select(rollouts, "f1", 0.9, accepted=2)
    assert [r.id for r in chosen] == ["a#0", "a#1", "b#1"]


def test_acceptance_counts_rollouts_attempts_and_questions() -> None:
    rollouts = [rollout("a", 0, 0.9), rollout("a", 1, 1.0), rollout("a", 2, 0.2), rollout("b", 0, 0.3)]
    assert acceptance(rollouts, "f1", 0.9) == {
        "acceptance_rate": 0.5, "attempts_histogram": {"1": 1, "3": 1}, "questions": 2, "questions_without_accepted": 1,
    }  # fmt: skip


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 99))
def test_iterations_go_through_all_questions_in_turn(count: int, size: int, seed: int) -> None:
    questions = [question(str(i)) for i in range(count)]
    size = min(size, count)
    passes = -(-count // size)
    seen = [q.id for t in range(1, passes + 1) for q in batch_of(questions, t, size, seed)]
    assert set(seen) == {q.id for q in questions}
    first = batch_of(questions, 1, size, seed)
    assert len({q.id for q in first}) == size  # no question twice
    assert first == batch_of(questions, 1, size, seed)


def test_a_threshold_above_its_cap_is_refused() -> None:
    with pytest.raises(ValueError, match=r"initial_threshold 0.95 is above threshold_cap 0.9"):
        SelectionSpec(initial_threshold=0.95, threshold_cap=0.9)
