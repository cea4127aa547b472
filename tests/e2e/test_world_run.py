"""A recipe run whole, as a user runs it; and the same run killed at several moments, which must end the same."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import command, content, environment, rollouts, run_command, run_here

pytestmark = pytest.mark.e2e(minutes=4)
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
PHASES = ("warmup", "iteration-01", "eval-start", "eval-final")


def lines(path: Path, count: int) -> Callable[[], bool]:
    return lambda: path.exists() and len(path.read_bytes().splitlines()) > count


def kill_when(workdir: Path, moment: Callable[[], bool]) -> None:
    """Start the run and kill it, with SIGKILL and without its steps being told, once ``moment`` has come."""
    process = subprocess.Popen(
        command(RECIPE, workdir, SMALL), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 300
        while not moment():
            assert process.poll() is None, "the run ended before the moment to kill it"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def outcome(workdir: Path) -> dict[str, Any]:
    """Everything that must not depend on kills."""
    found: dict[str, Any] = {}
    for phase in PHASES:
        sampled = rollouts(workdir, phase)
        assert len({r.id for r in sampled}) == len(sampled), "an attempt was sampled twice"
        found[phase] = sorted(r.model_dump_json() for r in sampled)
    for phase in ("warmup", "iteration-01"):
        figures, trained = content(workdir, phase, "sample"), content(workdir, phase, "train")
        found[f"{phase} threshold"] = (figures["threshold"], figures["mean_reward"], figures["digest"])
        found[f"{phase} weights"] = (trained["weights"], trained["examples"], trained["tokens_trained"])
    for phase in ("eval-start", "eval-final"):
        scores = content(workdir, phase, "scores")
        found[f"{phase} scores"] = (scores["metrics"], scores["per_question"])
    return found


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
        assert all((len(r.planner.token_ids[: r.planner.turns[0].end]) > 90) == count for r in texts), name
    for rollout in rollouts(undisturbed, "iteration-01", "selected"):
        assert rollout.rewards["f1"] >= figures["threshold"]


def test_a_finished_run_is_not_run_again(undisturbed: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in undisturbed.glob("*/rollouts.jsonl")}
    weights = (undisturbed / "iteration-01/model/model.safetensors").stat().st_mtime_ns
    printed = run_command(RECIPE, undisturbed, SMALL)
    assert "em" in printed.lower()
    assert "report.html" in printed
    assert {p: p.stat().st_mtime_ns for p in undisturbed.glob("*/rollouts.jsonl")} == before
    assert (undisturbed / "iteration-01/model/model.safetensors").stat().st_mtime_ns == weights


@pytest.mark.slow  # four kills of a run whose steps are processes; tests of single steps are killed at every change
def test_kills_change_nothing(undisturbed: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    kill_when(workdir, lines(workdir / "warmup/rollouts.jsonl", 5))
    kill_when(workdir, lambda: any(workdir.glob("*/checkpoints/**/checkpoint-*")))
    kill_when(workdir, lines(workdir / "iteration-01/rollouts.jsonl", 14))  # in the second wave of attempts
    kill_when(workdir, lines(workdir / "eval-final/rollouts.jsonl", 3))
    run_command(RECIPE, workdir, SMALL)
    assert outcome(workdir) == outcome(undisturbed)
