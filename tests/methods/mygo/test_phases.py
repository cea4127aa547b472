"""Steps of MyGO on a policy's answers: the sampled distribution, the rise of K, the learned examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.config.selection import SelectionSpec
from platform_sdk.methods import method as room
from platform_sdk.methods import selection, steps
from platform_sdk.methods.method import NoCarry, RunContext
from platform_sdk.methods.mygo.method import METHOD
from platform_sdk.methods.mygo.settings import AgentSpec, EvaluationSettings, WarmupSpec
from platform_sdk.methods.selection import Threshold, sample_iteration
from platform_sdk.record_files import read_jsonl, write_jsonl
from platform_sdk.records import Question, Rollout, Trajectory
from platform_sdk.sampling.engine import Request
from platform_sdk.sampling.rollout import Agent, SearchFunction
from platform_sdk.sampling.sampler import RolloutAgent, RolloutSampler
from tests.methods.contexts import plain
from tests.methods.mygo.scripted import QUESTION, TOKENIZER, Scripted, say, search

Policy = Callable[[Request], list[int]]
Context = tuple[RunContext[AgentSpec], list[Request]]
SELECTION, WARMUP = SelectionSpec(attempts=4, accepted=2, initial_threshold=0.5), WarmupSpec(trajectories=1, attempts=1)


def answers(request: Request) -> list[int]:
    return say("<think>t</think><answer>Lena Roth</answer>")


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RunContext[AgentSpec], list[Request]]:
    """A run of one question, whose policy answers it at once, and what the policy was asked."""
    asked: list[Request] = []

    def policy(request: Request) -> list[int]:
        asked.append(request)
        return answers(request)

    @contextmanager
    def opened(
        path: Path, spec: EngineSpec, model: str, make_agent: Callable[[Any, str], RolloutAgent]
    ) -> Iterator[RolloutSampler]:
        with RolloutSampler(path, make_agent(TOKENIZER, "w"), Scripted(policy), 4) as work:  # type: ignore[arg-type]
            yield work

    @contextmanager
    def searching(run: RunContext[AgentSpec]) -> Iterator[SearchFunction]:
        yield search("text")

    for module in (steps, selection):
        monkeypatch.setattr(module, "open_sampler", opened)
    for module in (room, selection):
        monkeypatch.setattr(module, "open_search", searching)
    monkeypatch.setattr(steps, "policy_digest", lambda model: "w")
    for part, question in (("train", QUESTION), ("eval", QUESTION.model_copy(update={"id": "e"}))):
        write_jsonl(tmp_path / f"corpus/questions.{part}.jsonl", Question, [question])
    drawn = {"temperature": 0.8, "top_p": 0.9}
    return METHOD.context(plain(tmp_path, "world-text", {"prompts": "compact"}, drawn, {})), asked


def test_evaluations_sample_from_a_distribution_of_their_own(context: Context) -> None:
    given, asked = context
    steps.evaluate(METHOD, given, "eval-start", "m", EvaluationSettings())
    steps.evaluate(METHOD, given, "eval-final", "m", EvaluationSettings(temperature=0.3, top_p=0.5))
    steps.sample(METHOD, given, "iteration", "iteration-01", 1, "m", SELECTION, Threshold())
    found = [(request.params.temperature, request.params.top_p) for request in asked]
    assert found == [(0.0, 1.0), (0.3, 0.5), (0.8, 0.9), (0.8, 0.9)]  # two of an iteration are accepted
    assert [request.dialogue for request in asked] == ["e#0", "e#0", "q#0", "q#1"]


def phases(*settings: str) -> dict[str, dict[str, Any]]:
    """Return the evaluations of the shipped recipe with these settings, by their phases."""
    recipe = load_recipe(Path("pipelines/mygo/world.yaml"), ["iterations=2", *settings])
    wires = [task.inputs for task in recipe.plan if task.component == "evaluate"]
    return {inputs["phase"].value: inputs["evaluation"].value for inputs in wires}  # type: ignore[union-attr]


def test_each_switch_adds_its_evaluations() -> None:
    assert list(phases()) == ["eval-start", "eval-final"]
    both = list(phases("evaluate_base=true", "evaluate_iterations=true"))
    assert both == ["eval-base", "eval-start", "eval-iteration-01", "eval-iteration-02", "eval-final"]


def test_the_base_model_is_evaluated_with_the_worked_example(context: Context) -> None:
    given, asked = context
    evaluations = phases("evaluate_base=true", "base_evaluation.temperature=0.7")
    for phase in ("eval-base", "eval-start"):
        steps.evaluate(METHOD, given, phase, "m", EvaluationSettings.model_validate(evaluations[phase]))
    # eval-base once, as sampled; eval-start as sampled and greedily.
    assert [request.params.temperature for request in asked] == [0.7, 0.7, 0.0]
    shown = ["Example" in TOKENIZER.decode(request.token_ids) for request in asked]
    assert shown == [True, False, False]


def test_the_warm_up_is_sampled_with_worked_examples_and_learned_without(context: Context, tmp_path: Path) -> None:
    given, _ = context
    steps.sample(METHOD, given, "warmup", "warmup", 0, "m", WARMUP, NoCarry())
    steps.select(METHOD, given, "warmup", "warmup", WARMUP, NoCarry())
    steps.sample(METHOD, given, "iteration", "iteration-01", 1, "m", SELECTION, Threshold())
    assert [r.id for r in read_jsonl(tmp_path / "warmup/rollouts.jsonl", Rollout)] == ["q#0"]
    [sampled], [learned], [bare, _] = (
        [r.main for r in read_jsonl(tmp_path / name, Rollout)]
        for name in ("warmup/rollouts.jsonl", "warmup/selected.jsonl", "iteration-01/rollouts.jsonl")
    )
    assert len(sampled.token_ids) > len(learned.token_ids)
    assert (learned.token_ids, learned.agent_mask) == (bare.token_ids, bare.agent_mask)


class Scores:
    """An agent whose attempts have the rewards that a test gives."""

    weights, corpus = "w", "c"

    def __init__(self, rewards: dict[str, float]) -> None:
        self.rewards = rewards

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        empty = Trajectory(id="planner", role="planner", token_ids=(), agent_mask=(), logprobs=(), turns=())
        yield from ()
        return Rollout(
            question=question, attempt=attempt, seed=0, main=empty, outcome="answered",
            rewards={"f1": self.rewards.get(f"{question.id}#{attempt}", 0.0)}, weights="w", corpus="c",
        )  # fmt: skip


def test_the_threshold_follows_from_the_first_attempts_alone(tmp_path: Path) -> None:
    """Three questions answered with 1, 0.8 and 0 at first: r̄ is 0.6, so K is 0.8, and the second has one already."""
    questions = [Question(id=name, text="?", answers=("x",), dataset="world") for name in "abc"]
    agent = Scores({"a#0": 1.0, "b#0": 0.8, "c#0": 0.0, "c#1": 1.0, "c#2": 0.79})
    spec = SelectionSpec(questions=3, accepted=1, attempts=3, initial_threshold=0.5)
    with RolloutSampler(tmp_path / "rollouts.jsonl", agent, Scripted(answers), 4) as phase:  # type: ignore[arg-type]
        mean, threshold = sample_iteration(phase, questions, 0.5, spec)
        assert (mean, threshold) == (pytest.approx(0.6), pytest.approx(0.8))
        assert [r.id for r in phase.ordered(questions)] == ["a#0", "b#0", "c#0", "c#1"]
        # A resumed phase, which has later attempts already, comes to the same.
        assert sample_iteration(phase, questions, 0.5, spec) == (mean, threshold)
        # From a threshold above the midpoint nothing rises.
        assert sample_iteration(phase, questions, 0.9, spec) == (mean, 0.9)
