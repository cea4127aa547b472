"""A recipe run whole, and again. What kills do to it is in tests/chaos."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import content, rollouts, run_command, run_here

pytestmark = pytest.mark.e2e
RECIPE = "world-text.yaml"
SMALL: dict[str, Any] = {
    "iterations": 1,
    "retrieval.threads": 1,
    "dataset.world.entities": 60,
    "dataset.world.train_questions": 40,
    "dataset.world.eval_questions": 12,
    "warmup.trajectories": 8,
    "warmup.attempts": 1,
    "warmup.training.checkpoint_steps": 1,
    "warmup.training.batch_size": 8,
    "selection.questions": 12,
    "selection.attempts": 4,
    "selection.accepted": 2,
    "training.checkpoint_steps": 1,
    "training.batch_size": 8,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_here(RECIPE, tmp_path_factory.mktemp("undisturbed") / "run", SMALL)


def test_a_run_leaves_what_it_promises(undisturbed: Path) -> None:
    for name in ("recipe.json", "manifest.jsonl", "report.html", "corpus/digests.json"):
        assert (undisturbed / name).stat().st_size > 0, name
    recipe = json.loads((undisturbed / "recipe.json").read_text())
    assert recipe["parameters"]["selection"]["attempts"] == 4
    figures = content(undisturbed, "iteration-01", "figures")
    assert sum(figures["attempts_histogram"].values()) == figures["questions"] == 12
    # The threshold is the midpoint between the first pass and a perfect answer, or the initial one if that is more.
    assert figures["threshold"] == pytest.approx(max(0.5, (figures["mean_reward"] + 1) / 2))
    # The policy that sampled iteration 1 is the one that the warm-up left.
    warmed = content(undisturbed, "warmup", "train")["weights"]
    assert {r.weights for r in rollouts(undisturbed, "iteration-01")} == {warmed}
    # What the warm-up learns has no worked example in its prompts, though it was sampled with one.
    for name, count in (("rollouts", True), ("selected", False)):
        texts = rollouts(undisturbed, "warmup", name)
        assert all((len(r.main.token_ids[: r.main.turns[0].end]) > 90) == count for r in texts), name
    for rollout in rollouts(undisturbed, "iteration-01", "selected"):
        assert rollout.rewards["f1"] >= figures["threshold"]


def test_a_finished_run_is_not_run_again_and_what_is_lost_of_it_is_made_again(undisturbed: Path) -> None:
    journal = undisturbed / "tracking/run.jsonl"
    rollouts = {path: path.stat().st_mtime_ns for path in undisturbed.glob("*/rollouts.jsonl")}
    before = journal.read_text()
    printed = run_command(RECIPE, undisturbed, SMALL)
    assert "finished already, on 20" in printed
    assert "eval-final" in printed
    assert journal.read_text() == before
    (undisturbed / "report.html").write_text("lost")  # belongs to no step, so it is made again
    printed = run_command(RECIPE, undisturbed, SMALL)
    assert "finished in" in printed
    assert (undisturbed / "report.html").stat().st_size > 10_000
    assert "finished already" in run_command(RECIPE, undisturbed, SMALL)
    assert {path: path.stat().st_mtime_ns for path in undisturbed.glob("*/rollouts.jsonl")} == rollouts
