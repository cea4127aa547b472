"""A recipe run whole, and again. What kills do to it is in tests/chaos."""

from __future__ import annotations

import json
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.evaluation.report import build_report
from platform_sdk.execution.runs import finished_at
from platform_sdk.planning.steps import planned_steps
from platform_sdk.tracking.store import folder_uri
from tests.e2e.runs import (
    RECIPES,
    ROOT,
    TINY_MYGO,
    command,
    content,
    environment,
    options,
    rollouts,
    run_here,
    steps_here,
)  # fmt: skip

pytestmark = pytest.mark.e2e(minutes=1)
RECIPE = "world-text.yaml"
SMALL: dict[str, Any] = {**TINY_MYGO, "warmup.training.checkpoint_steps": 1, "training.checkpoint_steps": 1}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_here(RECIPE, tmp_path_factory.mktemp("undisturbed") / "run", SMALL)


def test_finished_run_holds_its_documented_files(undisturbed: Path) -> None:
    for name in ("recipe.json", "manifest.jsonl", "report.html", "corpus/digests.json"):
        assert (undisturbed / name).stat().st_size > 0, name
    recipe = json.loads((undisturbed / "recipe.json").read_text())
    assert recipe["parameters"]["selection"]["attempts"] == SMALL["selection.attempts"]
    figures = content(undisturbed, "iteration-01", "figures")
    assert sum(figures["attempts_histogram"].values()) == figures["questions"] == SMALL["selection.questions"]
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


def test_every_step_names_in_mlflow_what_it_read_and_wrote(undisturbed: Path) -> None:
    from mlflow import MlflowClient

    store = MlflowClient(tracking_uri=folder_uri(undisturbed.parent))
    [experiment] = store.search_experiments(filter_string="name = 'mygo'")
    found = [store.get_run(run.info.run_id) for run in store.search_runs([experiment.experiment_id])]
    names = {run.info.run_name: run for run in found}
    models = {model.model_id: model.name for model in store.search_logged_models([experiment.experiment_id])}
    base, warmed, trained = "hopforge-world-base", "mygo-world-text-warmup", "mygo-world-text-iteration-01"
    asked, everything = {"train", "passages"}, {"train", "eval", "passages", "triples"}
    assert {
        name: (
            {data.dataset.name for data in run.inputs.dataset_inputs},
            {models[model.model_id] for model in run.inputs.model_inputs},
            {models[model.model_id] for model in run.outputs.model_outputs},
        )
        for name, run in names.items()
    } == {
        "run": (everything, {base}, {warmed, trained}),
        "corpus": (everything, set(), set()),
        "policy": (set(), {base}, set()),
        "index": ({"passages", "triples"}, set(), set()),
        "sample-warmup": (asked, {base}, set()),
        "score-warmup": ({"warmup/rollouts.jsonl"}, set(), set()),
        "train-warmup": ({"warmup/selected.jsonl"}, {base}, {warmed}),
        "eval-start": ({"eval", "passages"}, {warmed}, set()),
        "sample-iteration-01": (asked, {warmed}, set()),
        "score-iteration-01": ({"iteration-01/rollouts.jsonl"}, set(), set()),
        "train-iteration-01": ({"iteration-01/selected.jsonl"}, {warmed}, {trained}),
        "eval-final": ({"eval", "passages"}, {trained}, set()),
        "report": ({"eval-start/scores.json", "eval-final/scores.json"}, set(), set()),
    }
    scores = content(undisturbed, "eval-final", "scores")
    assert [point.value for point in store.get_metric_history(names["run"].info.run_id, "Scores/em")] == [
        content(undisturbed, "eval-start", "scores")["metrics"]["em"]["value"], scores["metrics"]["em"]["value"],
    ]  # fmt: skip
    version = store.get_model_version_by_alias("mygo-world-text", "run")
    assert {name for name in scores["shown"] if name in scores["metrics"]} <= version.tags.keys()


def test_example_prints_scores_and_a_dialogue(undisturbed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples/train_and_ask.py"))
    with steps_here():
        example["main"](str(RECIPES / RECIPE), str(undisturbed), *options(SMALL))
    printed = capsys.readouterr().out
    assert f"eval-final: {SMALL['dataset.world.eval_questions']} questions, {{'em': " in printed
    first = rollouts(undisturbed, "eval-final")[0]
    assert f"{first.question.text}\nanswered {first.main.answer!r}" in printed
    assert "[planner, agent] <think>" in printed
    assert all(f"found {item.id}: {item.text}" in printed for item in first.others[0].evidence)


def test_finished_run_is_not_repeated_and_its_lost_files_are_made_again(undisturbed: Path) -> None:
    files = [*undisturbed.glob("*/rollouts.jsonl"), undisturbed / "iteration-01/model/model.safetensors"]
    before = [path.stat().st_mtime_ns for path in files]
    journal = (undisturbed / "tracking/run.jsonl").read_bytes()

    def again() -> str:
        return subprocess.run(
            command(RECIPE, undisturbed, SMALL), env=environment(), capture_output=True, text=True, check=True
        ).stdout

    printed = again()
    assert "already finished on 20" in printed
    assert "eval-final" in printed
    assert (undisturbed / "tracking/run.jsonl").read_bytes() == journal
    page = (undisturbed / "report.html").read_bytes()
    (undisturbed / "report.html").write_text(build_report(undisturbed), encoding="utf-8")  # as hopforge report does
    assert (undisturbed / "report.html").read_bytes() == page
    (undisturbed / "report.html").write_text("lost")  # belongs to no step, so it is made again
    run_here(RECIPE, undisturbed, SMALL)
    assert (undisturbed / "report.html").stat().st_size > 10_000
    assert "already finished" in again()
    assert [path.stat().st_mtime_ns for path in files] == before


def test_finished_run_is_found_wherever_its_data_lie_now(undisturbed: Path, tmp_path: Path) -> None:
    def finished(**changed: Any) -> bool:
        return finished_at(load_recipe(RECIPES / RECIPE, options(SMALL | changed)), undisturbed) is not None

    assert finished(data_dir=str(tmp_path))
    moved = load_recipe(RECIPES / RECIPE, options(SMALL | {"data_dir": str(tmp_path)}))
    assert {step.state for step in planned_steps(moved, undisturbed)} == {"finished"}
    with pytest.raises(UserError, match=r"run with other parameters.*\n.*dataset.world.seed"):
        finished(**{"dataset.world.seed": 8})
