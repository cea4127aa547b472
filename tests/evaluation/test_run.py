"""An evaluation run: means over those that have a metric, and nothing done twice."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.evaluator import EvaluationResult, evaluate
from platform_sdk.records import Evidence, Question, Rollout, Trajectory
from platform_sdk.sampling.engine import Completion, Request
from platform_sdk.sampling.rollout import Agent, SearchRequest, look_up
from platform_sdk.sampling.sampler import RolloutSampler

QUESTIONS = [Question(id=f"q{i}", text="?", answers=("x",), dataset="world") for i in range(4)]


class Idle:
    """An engine that is never asked: the agent here only searches."""

    tokenizer = None
    weight_version = "w"
    max_model_len = 8

    def submit(self, request: Request) -> None:
        raise AssertionError

    def step(self) -> list[Completion]:
        return []

    def release(self, dialogue: str) -> None:
        raise AssertionError


class Searcher:
    weights, corpus = "w", "c"

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        yield look_up(search, [SearchRequest("?")], 1)
        planner = Trajectory(id="agent", role="agent", token_ids=(), agent_mask=(), logprobs=(), turns=())
        return Rollout(
            question=question, attempt=attempt, seed=0, main=planner, outcome="answered", weights="w", corpus="c"
        )


def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    return [[]] * len(requests)


def measures(rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
    """Questions 0 to 3 score 0, 1, 2, 3; only the last two have gold evidence."""
    numbers = [int(rollout.question.id[1:]) for rollout in rollouts]
    return [{"em": float(n)} | ({"evidence_recall": n / 4} if n > 1 else {}) for n in numbers]


def test_scores_by_hand(tmp_path: Path) -> None:
    opened: list[int] = []

    @contextmanager
    def open_sampler() -> Iterator[RolloutSampler]:
        opened.append(1)
        with RolloutSampler(tmp_path / "eval-start/rollouts.jsonl", Searcher(), Idle(), 2) as phase:  # type: ignore[arg-type]
            yield phase

    def run(inputs: str) -> EvaluationResult:
        outcome = tmp_path / "eval-start/scores.json"
        return evaluate(open_sampler, QUESTIONS, measures, outcome=outcome, inputs=inputs, seed=0)

    first = run("a")
    assert first.metrics == {"em": 1.5, "evidence_recall": 0.625}
    scores = json.loads(first.path.read_text())
    assert (scores["phase"], scores["n"], scores["inputs"]) == ("eval-start", 4, "a")
    assert [scores["metrics"][name]["n"] for name in ("em", "evidence_recall")] == [4, 2]
    assert scores["per_question"]["q1"] == {"em": 1.0}
    # Of two values the bootstrap's mean is one of them at either end, or the middle.
    recall = scores["metrics"]["evidence_recall"]
    assert (recall["low"], recall["high"]) == (0.5, 0.75)
    assert run("a") == first
    assert opened == [1]
    with pytest.raises(UserError, match="was made with other settings"):
        run("b")
    # Scores are of these rollouts: none may be altered, cut or missing afterwards.
    path = tmp_path / "eval-start/rollouts.jsonl"
    whole = path.read_text()
    for altered in (
        whole.replace('"outcome":"answered"', '"outcome":"context_limit"', 1),
        whole[: whole.rstrip().rindex("\n") + 1],
    ):
        path.write_text(altered)
        with pytest.raises(UserError, match=r"rollouts.jsonl: was altered after it was scored"):
            run("a")
    path.unlink()
    with pytest.raises(UserError, match="no such file"):
        run("a")


class Speaker(Searcher):
    """Says what is right when it samples, and nothing when it is greedy."""

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        rollout = yield from super().rollout(question, attempt)
        said = rollout.main.model_copy(update={"answer": None if attempt else "x"})
        return rollout.model_copy(update={"main": said})


def test_evaluation_adds_greedy_scores_and_is_not_repeated(tmp_path: Path) -> None:
    opened: list[str] = []

    def scored(rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
        return [{"em": float(rollout.main.answer == "x"), "turns": 1.0} for rollout in rollouts]

    def run(phase: str) -> EvaluationResult:
        @contextmanager
        def open_sampler() -> Iterator[RolloutSampler]:
            opened.append(phase)
            path = tmp_path / phase / "rollouts.jsonl"
            with RolloutSampler(path, Speaker(), Idle(), 2) as sampler:  # type: ignore[arg-type]
                yield sampler

        outcome = tmp_path / phase / "scores.json"
        settings = {"inputs": "a", "seed": 0, "shown": ("em",), "greedy": True}
        return evaluate(open_sampler, QUESTIONS, scored, outcome=outcome, **settings)  # type: ignore[arg-type]

    first = run("eval-start")
    assert first.metrics == {"em": 1.0, "turns": 1.0, "em_greedy": 0.0}
    scores = json.loads(first.path.read_text())
    assert (scores["n"], scores["attempts"], scores["shown"]) == (4, 2, ["em", "em_greedy"])
    # The same weights, asked in the same way: the evaluation is there already.
    final = run("eval-final")
    assert opened == ["eval-start"]
    assert json.loads(final.path.read_text()) == scores | {"phase": "eval-final"}
    for phase in ("eval-start", "eval-final"):
        assert json.loads((tmp_path / phase / "predictions-world.json").read_text())["answer"] == {
            question.id: "x" for question in QUESTIONS
        }
        assert json.loads((tmp_path / phase / "predictions-greedy-world.json").read_text())["answer"] == {}
    assert run("eval-final") == final


def test_finished_scores_are_accepted_on_a_cpu_with_other_last_bits(tmp_path: Path) -> None:
    outcome, questions = (
        tmp_path / "scores.json",
        [q.model_copy(update={"id": f"q{n}"}) for n, q in enumerate(QUESTIONS * 80)],
    )

    def run() -> EvaluationResult:
        @contextmanager
        def open_sampler() -> Iterator[RolloutSampler]:
            with RolloutSampler(tmp_path / "rollouts.jsonl", Speaker(), Idle(), 2) as sampler:  # type: ignore[arg-type]
                yield sampler

        def scored(rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
            return [{"recall": number % 3 / 3} for number, _ in enumerate(rollouts)]

        return evaluate(open_sampler, questions, scored, outcome=outcome, inputs="a", seed=0, shown=("recall",))

    run()
    scores = json.loads(outcome.read_text())
    interval = scores["metrics"]["recall"]
    for low, accepted in ((math.nextafter(interval["low"], 1.0), True), (interval["low"] + 0.001, False)):
        outcome.write_text(json.dumps(scores | {"metrics": {"recall": interval | {"low": low}}}))
        if accepted:
            assert run().metrics == {"recall": interval["value"]}
        else:
            with pytest.raises(UserError, match=r"metrics\.recall was altered"):
                run()
