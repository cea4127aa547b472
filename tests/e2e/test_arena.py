"""ARENA's pipelines run whole: trained online, and a baseline of demonstrations. Kills are in tests/chaos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.recipe import load_recipe
from platform_sdk.methods.arena.rewards import rewards
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.tracking.updates import read_updates
from tests.e2e.runs import ROOT, content, rollouts, run_here

pytestmark = pytest.mark.e2e(minutes=1)
RECIPE = "../arena/world.yaml"
WORLD = {"entities": 60, "train_questions": 24, "eval_questions": 8, "hops": [1, 2], "context": 4}
SMALL: dict[str, Any] = {
    "dataset.world": WORLD,
    "online.updates": 2,
    "online.questions": 4,
    "online.group": 5,
    "online.checkpoint_steps": 1,
    "online.evaluate_every": 1,
}


def sampled(run: Path) -> list[Rollout]:
    return [rollout for file in sorted(run.glob("online/rollouts/*.jsonl")) for rollout in read_jsonl(file, Rollout)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_here(RECIPE, tmp_path_factory.mktemp("undisturbed") / "run", SMALL)


def test_arena_run_trains_and_evaluates_its_policy(undisturbed: Path) -> None:
    spec = load_recipe(ROOT / "pipelines/arena/world.yaml").settings("agent")
    found = sampled(undisturbed)
    assert len(found) == 2 * 4 * 5
    for rollout in found:
        assert rollout.rewards == rewards(rollout, spec)
        assert [item.id for item in rollout.main.evidence] == [p.id for p in rollout.question.context]
    assert any(rollout.rewards["reward"] for rollout in found), "the base model knows the form"
    first, second = read_updates(undisturbed / "online")
    assert len({first.weights, second.weights, content(undisturbed, "online", "train")["weights"]}) == 3
    # The same policy, questions and seeds: the evaluation after the last update is the one at the end.
    last, end = (content(undisturbed, phase, "scores") for phase in ("eval-u0002", "eval-final"))
    assert last["per_question"] == end["per_question"]
    assert {"em", "f1", "format", "relevance", "bonus", "reward"} <= end["metrics"].keys()


def test_baseline_learns_from_demonstrations_alone(tmp_path: Path) -> None:
    changes = {
        "dataset": {"format": "world", "world": WORLD},
        "model": "hopforge:world-base-arena",
        "agent": {"form": "direct", "prompts": "compact", "max_tokens": 16},
        "training.batch_size": 8,
    }
    run = run_here("../arena-baselines/sft-reasoning-smollm2.yaml", tmp_path / "run", changes)
    learned = rollouts(run, "supervised", "selected")
    assert [rollout.main.answer for rollout in learned] == [r.question.answers[0] for r in learned]
    assert len(learned) == content(run, "supervised", "figures")["demonstrations"] == 24
    assert {rollout.main.logprobs for rollout in learned} == {()}, "no policy sampled them"
    curve = content(run, "supervised", "train")["curve"]
    assert {name for step in curve for name in step["statistics"]} == {"token_loss"}
    before, after = (content(run, phase, "scores")["metrics"] for phase in ("eval-start", "eval-final"))
    assert before.keys() == after.keys() >= {"em", "f1", "answered", "tokens"}
    assert "relevance" not in after
