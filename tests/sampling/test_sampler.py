"""A phase: what is finished is on disk, and is neither sampled again nor mixed with what others sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Evidence, Question, Rollout, Trajectory, Turn
from platform_sdk.sampling.engine import SamplingEngine, SamplingParams
from platform_sdk.sampling.rollout import Agent, Generate, SearchRequest, look_up
from platform_sdk.sampling.sampler import RolloutSampler, open_sampler
from platform_sdk.sampling.seeds import seed_of

ENGINE = EngineSpec(live=3)
QUESTIONS = [Question(id=f"q{i}", text="w3 w4", answers=("x",), dataset="world") for i in range(5)]


@dataclass
class Talker:
    """An agent of three tokens, which breaks off where it is told to."""

    weights: str
    corpus: str = "c"
    breaks: tuple[str, int] | None = None
    made: list[str] = field(default_factory=list)

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        [found] = yield look_up(search, [SearchRequest(question.text)], 1)
        seed = seed_of(question.id, attempt)
        heard = yield Generate((5, 6), SamplingParams(max_tokens=3, seed=seed), question.id)
        if (question.id, attempt) == self.breaks:
            raise KeyboardInterrupt
        self.made.append(f"{question.id}#{attempt}")
        tokens = (5, 6, *heard.token_ids)
        shown = Turn(speaker="environment", text=found[0].text, start=0, end=2, evidence=tuple(found))
        planner = Trajectory(
            id="agent", role="agent", token_ids=tokens, agent_mask=(0, 0) + (1,) * len(heard.token_ids),
            logprobs=(0.0, 0.0, *heard.logprobs), turns=(shown,),
        )  # fmt: skip
        return Rollout(
            question=question, attempt=attempt, seed=seed, main=planner, outcome="answered",
            rewards={"em": float(attempt)}, weights=self.weights, corpus=self.corpus,
        )  # fmt: skip


def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    return [[Evidence(kind="passage", id="p", text=request.query, score=1.0)] for request in requests]


def sample(path: Path, model: Path, breaks: tuple[str, int] | None = None, corpus: str = "c") -> Talker:
    """Two attempts at every question; the agent that made them."""
    talkers: list[Talker] = []

    def make_agent(tokenizer: object, weights: str) -> Talker:
        talkers.append(Talker(weights, corpus, breaks))
        return talkers[-1]

    with open_sampler(path, ENGINE, str(model), make_agent) as phase:
        before = phase.seconds
        for attempt in (1, 0):
            phase.once(QUESTIONS, attempt, "test")
        assert [r.id for r in phase.ordered(QUESTIONS)] == [f"q{i}#{a}" for i in range(5) for a in (0, 1)]
        assert phase.rewards(QUESTIONS[2], "em") == {0: 0.0, 1: 1.0}
        assert phase.seconds > before or not talkers[-1].made
    return talkers[-1]


def test_an_interrupted_phase_ends_as_an_undisturbed_one(tiny: Path, tmp_path: Path) -> None:
    sample(tmp_path / "one.jsonl", tiny)
    whole = list(read_jsonl(tmp_path / "one.jsonl", Rollout))
    with pytest.raises(KeyboardInterrupt):
        sample(tmp_path / "two.jsonl", tiny, breaks=("q1", 0))
    made = {rollout.id for rollout in read_jsonl(tmp_path / "two.jsonl", Rollout)}
    assert {f"q{i}#1" for i in range(5)} <= made
    assert "q1#0" not in made
    with (tmp_path / "two.jsonl").open("a") as stream:
        stream.write('{"question": {"id": "q4", "te')  # what a kill leaves of a line
    again = sample(tmp_path / "two.jsonl", tiny)
    assert not made & set(again.made)
    assert sorted(read_jsonl(tmp_path / "two.jsonl", Rollout), key=lambda r: r.id) == sorted(whole, key=lambda r: r.id)
    assert sample(tmp_path / "two.jsonl", tiny).made == []


def test_rollouts_of_others_are_not_mixed_in(tiny: Path, other: Path, tmp_path: Path) -> None:
    sample(tmp_path / "rollouts.jsonl", tiny)
    with pytest.raises(UserError, match="holds rollouts of other weights"):
        sample(tmp_path / "rollouts.jsonl", other)
    with pytest.raises(UserError, match="holds rollouts of other corpus"):
        sample(tmp_path / "rollouts.jsonl", tiny, corpus="d")


class Undefined(Talker):
    """A talker whose rewards are computed afterwards, as a method does, and are not numbers."""

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        rollout = yield from super().rollout(question, attempt)
        return rollout.model_copy(update={"rewards": {"em": 1.0, "ratio": float("nan")}})


def test_a_reward_that_is_not_a_finite_number_is_refused_and_not_stored(tiny: Path, tmp_path: Path) -> None:
    def make_agent(tokenizer: object, weights: str) -> Talker:
        return Undefined(weights)

    with (
        open_sampler(tmp_path / "rollouts.jsonl", ENGINE, str(tiny), make_agent) as phase,
        pytest.raises(UserError, match=r"rollout q\d#0: the reward ratio is nan; correct the method"),
    ):
        phase.once(QUESTIONS, 0, "test")
    assert list(read_jsonl(tmp_path / "rollouts.jsonl", Rollout)) == []


class Plain:
    """An agent without requests; only every second rollout has the reward ``style``."""

    weights, corpus = "w", "c"

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        yield from ()
        main = Trajectory(
            id="agent", role="agent", token_ids=(5, 6), agent_mask=(0, 1), logprobs=(0.0, -1.0), turns=()
        )  # fmt: skip
        rewards = {"style": 1.0, "em": 0.0} if int(question.id) % 2 == 0 else {"em": 0.0}
        return Rollout(
            question=question, attempt=attempt, seed=0, main=main, outcome="answered", rewards=rewards,
            weights=self.weights, corpus=self.corpus,
        )  # fmt: skip


def test_a_phase_reads_each_rollout_a_fixed_number_of_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed in the progress bar must not sum over all earlier rollouts each time, nor need equal rewards."""
    reads = []
    recorded = Rollout.recorded.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Rollout, "recorded", property(lambda rollout: (reads.append(rollout.id), recorded(rollout))[1]))
    questions = [Question(id=str(i), text="w3", answers=("x",), dataset="world") for i in range(60)]
    with RolloutSampler(tmp_path / "rollouts.jsonl", Plain(), cast(SamplingEngine, None), live=4) as phase:
        phase.once(questions, 0, "test")
    assert max(Counter(reads).values()) < 6
