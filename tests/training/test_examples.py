from __future__ import annotations

from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.records import Question, Rollout, Trajectory, Turn
from platform_sdk.training.credit import TrajectoryKey
from platform_sdk.training.examples import Example, digest_examples, examples_of, fit, truncated_examples


def example(mask: tuple[int, ...], name: str = "e") -> Example:
    return Example(name, tuple(range(len(mask))), mask, tuple(-0.5 * m for m in mask), "w")


def trajectory(role: str, name: str, mask: tuple[int, ...], **changes: Any) -> Trajectory:
    return Trajectory(
        role=role, id=name, token_ids=tuple(range(len(mask))), agent_mask=mask, logprobs=(0.0,) * len(mask), turns=(),
        **changes,
    )  # fmt: skip


def test_planner_and_each_worker_become_examples_of_their_own() -> None:
    rollout = Rollout(
        question=Question(id="q7", text="?", answers=("a",), dataset="d"), attempt=3, seed=0,
        main=trajectory("planner", "planner", (0, 0, 1)),
        others=(trajectory("worker", "1.0", (0, 1)), trajectory("worker", "1.1", (0, 1, 1))),
        outcome="answered", weights="policy", corpus="c",
    )  # fmt: skip
    made = examples_of([rollout])
    assert [e.id for e in made] == ["q7#3/planner", "q7#3/1.0", "q7#3/1.1"]
    assert [e.agent_mask for e in made] == [(0, 0, 1), (0, 1), (0, 1, 1)]
    assert {e.weights for e in made} == {"policy"}


def test_a_trajectory_without_credit_is_left_out_and_one_for_scoring_is_never_trained_on() -> None:
    question = Question(id="q", text="?", answers=("a",), dataset="d")
    rollouts = [
        Rollout(
            question=question, attempt=attempt, seed=0, main=trajectory("planner", "planner", (0, 0, 1)),
            others=(trajectory("worker", "1.0", (0, 1)), trajectory("worker", "probe", (0, 1), use="scoring")),
            outcome="answered", weights="w", corpus="c",
        )
        for attempt in range(2)
    ]  # fmt: skip
    made = examples_of(rollouts, {TrajectoryKey("q#0", "planner"): (0, 0, -0.5), TrajectoryKey("q#1", "1.0"): (0, 2)})
    assert {e.id: e.advantages for e in made} == {"q#0/planner": (0.0, 0.0, -0.5), "q#1/1.0": (0.0, 2.0)}
    assert examples_of(rollouts, {}) == []
    assert [e.id for e in examples_of(rollouts)] == ["q#0/planner", "q#0/1.0", "q#1/planner", "q#1/1.0"]
    assert [e.id for e in examples_of(rollouts, role="worker")] == ["q#0/1.0", "q#1/1.0"]


def test_truncation_keeps_the_beginning_and_is_counted() -> None:
    fitted = fit([example((0, 1, 1, 0, 1), "a"), example((0, 1), "b"), example((0, 0, 0, 0, 0, 1), "c")], 3, "truncate")
    assert [(e.id, e.token_ids, e.agent_mask) for e in fitted.examples] == [
        ("a", (0, 1, 2), (0, 1, 1)),
        ("b", (0, 1), (0, 1)),
    ]
    # a lost 2 tokens and c 3; of c nothing is left that the agent said
    assert (fitted.truncated, fitted.tokens_cut, fitted.dropped_too_long, fitted.dropped_empty) == (2, 5, 0, 1)


def test_turn_that_a_stop_string_ended_is_not_truncated() -> None:
    def said(attempt: int, text: str) -> Rollout:
        main = trajectory("agent", "agent", (0, 1, 1)).model_copy(
            update={"turns": (Turn(speaker="agent", text=text, start=1, end=3),)}
        )
        return Rollout(
            question=Question(id="q", text="?", answers=("a",), dataset="d"), attempt=attempt, seed=0, main=main,
            outcome="iteration_limit", weights="policy", corpus="c",
        )  # fmt: skip

    rollouts = [said(0, "<search>Oslo</search>\n"), said(1, "<search>Oslo"), said(2, "")]
    assert truncated_examples(rollouts, {9}, ("</search>", "</answer>")) == {"q#1/agent", "q#2/agent"}
    assert len(truncated_examples(rollouts, {9})) == 3
    assert truncated_examples(rollouts, {2}) == set()
    # Stop strings that come in a program's requests: two tokens of at most three, or the whole of the context.
    assert truncated_examples(rollouts, {9}, (), (3, 4)) == set()
    assert len(truncated_examples(rollouts, {9}, (), (2, 4))) == len(truncated_examples(rollouts, {9}, (), (3, 3))) == 3


def test_branch_is_an_example_of_online_training_alone_and_masked_if_its_context_was_full() -> None:
    told = Turn(speaker="environment", text="?", start=0, end=1)
    said = Turn(speaker="agent", text="a", start=1, end=3)
    full = trajectory("agent", "branch-1-0", (0, 1, 1, 0)).model_copy(
        update={"use": "branch", "turns": (told, said, Turn(speaker="environment", text="?", start=3, end=4))}
    )
    ended = trajectory("agent", "branch-1-1", (0, 1, 1)).model_copy(update={"use": "branch", "turns": (told, said)})
    rollout = Rollout(
        question=Question(id="q", text="?", answers=("a",), dataset="d"), attempt=0, seed=0,
        main=trajectory("agent", "agent", (0, 1, 1)).model_copy(update={"turns": (told, said)}), others=(full, ended),
        outcome="answered", weights="policy", corpus="c",
    )  # fmt: skip
    assert [example.id for example in examples_of([rollout])] == ["q#0/agent"]
    values = {TrajectoryKey(rollout.id, one.id): one.agent_mask for one in rollout.recorded}
    assert [example.id for example in examples_of([rollout], values)] == [f"q#0/{one.id}" for one in rollout.recorded]
    assert truncated_examples([rollout], {2}) == {"q#0/branch-1-0"}


def test_too_long_examples_are_dropped_and_counted() -> None:
    fitted = fit([example((0, 1, 1, 0, 1)), example((0, 1))], 3, "drop")
    assert len(fitted.examples) == 1
    assert (fitted.truncated, fitted.tokens_cut, fitted.dropped_too_long, fitted.dropped_empty) == (0, 0, 1, 0)


def test_too_long_as_an_error_names_the_example_and_the_remedy() -> None:
    with pytest.raises(UserError, match=r"example e has 5 tokens.*max_length 3.*too_long"):
        fit([example((0, 1, 1, 0, 1))], 3, "error")


def test_an_example_of_exactly_the_length_is_whole() -> None:
    fitted = fit([example((0, 1, 1))], 3, "error")
    assert fitted.truncated == 0
    assert fitted.examples == (example((0, 1, 1)),)


def test_a_first_token_of_the_agent_is_refused() -> None:
    with pytest.raises(ValueError, match="first token"):
        example((1, 1))


def test_the_digest_sees_every_field() -> None:
    base = Example("e", (1, 2), (0, 1), (0.0, -1.0), "w")
    others = [
        Example("f", (1, 2), (0, 1), (0.0, -1.0), "w"),
        Example("e", (1, 3), (0, 1), (0.0, -1.0), "w"),
        Example("e", (1, 2), (0, 0), (0.0, -1.0), "w"),
        Example("e", (1, 2), (0, 1), (0.0, -1.1), "w"),
        Example("e", (1, 2), (0, 1), (0.0, -1.0), "v"),
    ]
    assert len({digest_examples([e]) for e in [base, *others]}) == 6
    assert digest_examples([base, others[0]]) != digest_examples([others[0], base])
