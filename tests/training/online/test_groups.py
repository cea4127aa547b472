"""Sampling the groups of an update: what is sampled again, what is used again, and what is set aside."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.online import OnlineSpec
from platform_sdk.records import Question, Rollout, Trajectory
from platform_sdk.sampling.rollout import Agent
from platform_sdk.training.credit import Credit, CreditProbe, GroupAdvantage
from platform_sdk.training.online.groups import GroupSampler, OnlineTask
from tests.training.online.lucky import nothing, question

NOTHING_SAID = Trajectory(role="agent", id="agent", token_ids=(5, 6), agent_mask=(0, 1), logprobs=(0.0, -1.0), turns=())


@dataclass
class Scripted:
    """Gives the rewards of a script, by question and attempt, and notes what it was asked for."""

    script: dict[str, Sequence[float]]
    asked: list[tuple[str, int]]
    weights: str
    corpus: str = "c"

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        self.asked.append((question.id, attempt))
        yield from ()
        return Rollout(
            question=question, attempt=attempt, seed=0, main=NOTHING_SAID, outcome="answered",
            rewards={"reward": self.script[question.id][attempt]}, weights=self.weights, corpus=self.corpus,
        )  # fmt: skip


class NoEngine:
    """Nothing is generated here."""

    tokenizer: Any = None

    def release(self, dialogue: str) -> None: ...


SCRIPT: dict[str, Sequence[float]] = {
    "q0": [0, 1],  # varies at once
    "q1": [1, 1, 0, 0, 1, 0],  # in the third wave
    "q2": [0, 0, 0, 0, 0, 0],  # never
    "q3": [0, 1],
}
QUESTIONS = [question(number) for number in range(3)]


def sampler(tmp_path: Path, asked: list[tuple[str, int]], credit: Credit | None = None, **change: Any) -> GroupSampler:
    spec = OnlineSpec(updates=1, group=2, **{"resamples": 2, **change})

    def agent(tokenizer: Any, weights: str, phase: str) -> Scripted:
        assert phase == "online-0001"
        return Scripted(SCRIPT, asked, weights)

    engine: Any = NoEngine()
    task = OnlineTask(QUESTIONS, nothing, agent, 4, credit or GroupAdvantage("reward"))
    return GroupSampler(spec, task, engine, tmp_path, "online", seed=5)


def test_a_group_without_variance_is_sampled_again_with_further_attempts(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    sampling = sampler(tmp_path, asked)
    assert not sampling.whole(1, QUESTIONS)
    sampling.sample(1, QUESTIONS, "w")
    assert sorted(asked) == [("q0", 0), ("q0", 1), *(("q1", n) for n in range(6)), *(("q2", n) for n in range(6))]
    groups = sampling.gather(1, QUESTIONS)
    assert [[r.attempt for r in group.first] for group in groups] == [[0, 1]] * 3
    assert [[r.attempt for r in group.learned] for group in groups] == [[0, 1], [4, 5], [4, 5]]
    assert [len(group.sampled) for group in groups] == [2, 6, 6]
    assert sampling.whole(1, QUESTIONS)


def test_a_group_is_sampled_once_by_default(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    sampling = sampler(tmp_path, asked, resamples=0)
    sampling.sample(1, QUESTIONS, "w")
    assert len(asked) == 6
    assert [[r.attempt for r in group.learned] for group in sampling.gather(1, QUESTIONS)] == [[0, 1]] * 3


REFILLED = [question(number) for number in (1, 0, 2, 3, 4, 5)]


def test_groups_that_teach_nothing_are_replaced_by_other_questions(tmp_path: Path) -> None:
    """Two questions an update: q1 teaches nothing, nor does q2, which is asked instead; q3 does."""
    asked: list[tuple[str, int]] = []
    sampling = sampler(tmp_path, asked, questions=2, resamples=0, refills=2)
    sampling.sample(1, REFILLED, "w")
    assert sorted({id for id, _ in asked}) == ["q0", "q1", "q2", "q3"]
    groups = sampling.gather(1, REFILLED)
    assert [(group.first[0].question.id, group.replaced) for group in groups] == [
        ("q1", True), ("q0", False), ("q2", True), ("q3", False),
    ]  # fmt: skip
    assert sampling.whole(1, REFILLED)
    asked.clear()
    again = sampler(tmp_path, asked, questions=2, resamples=0, refills=2)
    again.sample(1, REFILLED, "w")
    assert asked == []


def test_refills_end_with_the_questions_that_may_replace_others(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    sampling = sampler(tmp_path, asked, questions=2, resamples=0, refills=1)
    sampling.sample(1, REFILLED[:3], "w")
    assert [group.replaced for group in sampling.gather(1, REFILLED[:3])] == [True, False, True]


def test_rollouts_of_a_killed_process_are_kept_and_missing_ones_sampled(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    sampler(tmp_path, asked).sample(1, QUESTIONS, "w")
    path = tmp_path / "0001.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:9]) + "\n" + lines[9][:30])  # a header, 8 rollouts, and a line cut short
    assert not sampler(tmp_path, asked).whole(1, QUESTIONS)
    asked.clear()
    sampler(tmp_path, asked).sample(1, QUESTIONS, "w")
    assert len(asked) == 6
    assert sorted(path.read_text().splitlines()) == sorted(lines)


def test_rollouts_of_other_weights_are_set_aside_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[str, int]] = []
    for weights in ("one", "two", "three"):
        with caplog.at_level(logging.WARNING):
            sampler(tmp_path, asked).sample(1, QUESTIONS, weights)
    assert "sampled with other weights (one, now two)" in caplog.text
    assert "set aside as 0001.jsonl.stale2" in caplog.text
    assert len(asked) == 3 * 14
    assert {path.name for path in tmp_path.glob("0*jsonl*")} == {
        "0001.jsonl", "0001.jsonl.stale1", "0001.jsonl.stale2",
    }  # fmt: skip
    groups = sampler(tmp_path, asked).gather(1, QUESTIONS)
    assert {rollout.weights for group in groups for rollout in group.sampled} == {"three"}


def test_a_group_that_is_prepared_is_not_prepared_again(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    prepared: list[str] = []

    class RecordingCredit(GroupAdvantage):
        def prepare(self, group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
            prepared.append(group[0].question.id)
            yield from ()
            return [rollout.model_copy(update={"rewards": {**rollout.rewards, "luck": 1.0}}) for rollout in group]

    def again(credit: Credit) -> GroupSampler:
        return sampler(tmp_path, asked, credit)

    again(RecordingCredit("reward")).sample(1, QUESTIONS, "w")
    path = tmp_path / "prepared" / "0001.jsonl"
    path.write_text(path.read_text()[:-30])  # a kill cut the last line short
    assert prepared == ["q0", "q1", "q2"]
    assert not again(RecordingCredit("reward")).whole(1, QUESTIONS)
    again(RecordingCredit("reward")).sample(1, QUESTIONS, "w")
    assert prepared == ["q0", "q1", "q2", "q2"]
    assert again(RecordingCredit("reward")).whole(1, QUESTIONS)
    groups = again(RecordingCredit("reward")).gather(1, QUESTIONS)
    assert [[r.attempt for r in group.learned] for group in groups] == [[0, 1], [4, 5], [4, 5]]
    assert all(rollout.rewards["luck"] == 1 for group in groups for rollout in group.learned)
    assert all("luck" not in rollout.rewards for group in groups for rollout in group.sampled)
    # Other weights' groups are prepared again, although the questions are the same.
    again(RecordingCredit("reward")).sample(1, QUESTIONS, "others")
    assert len(prepared) == 7
    assert {r.weights for group in again(RecordingCredit("reward")).gather(1, QUESTIONS) for r in group.learned} == {
        "others"
    }


def test_a_credit_that_changes_what_was_sampled_is_refused(tmp_path: Path) -> None:
    class AlteringCredit(GroupAdvantage):
        def prepare(self, group: Sequence[Rollout], probe: CreditProbe) -> Agent[Sequence[Rollout]]:
            yield from ()
            return group[:1]

    with pytest.raises(UserError, match=r"AlteringCredit.prepare changed what was sampled at question q0"):
        sampler(tmp_path, [], AlteringCredit("reward")).sample(1, QUESTIONS, "w")


def test_a_reward_that_the_agent_does_not_give_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rollout q0#0 has no reward 'f1' \(it has reward\)"):
        sampler(tmp_path, [], GroupAdvantage("f1")).sample(1, QUESTIONS, "w")
