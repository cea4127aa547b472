"""Plan of a run on this machine, compared with what its steps then do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.execution.claim import claim
from platform_sdk.execution.lock import locked
from platform_sdk.execution.plan import inputs_of
from platform_sdk.execution.step import load_step
from platform_sdk.planning.local import plan_here
from platform_sdk.planning.needs import needs_of
from platform_sdk.planning.steps import planned_steps
from platform_sdk.sizing.memory import GIB
from platform_sdk.tracking import manifest, start_run
from platform_sdk.tracking.seals import last_entries
from tests.methods.finished_run import TINY

HOME = Path(__file__).parents[2]
RECIPE = HOME / "pipelines/mygo/world.yaml"
FIRST = ("corpus", "policy", "index")


def run_first_steps(recipe: Recipe, run_dir: Path) -> None:
    """Run the first steps of a run as the runner does, in this process."""
    claim(run_dir, recipe.resolved())
    start_run(run_dir, recipe.resolved(), follow=False)
    outputs: dict[str, dict[str, Any]] = {}
    for task in recipe.plan[: len(FIRST)]:
        step = load_step(task.component)
        inputs = step.Inputs.model_validate(inputs_of(task, recipe.parameters, run_dir, outputs))
        outputs[task.id] = step.run(inputs).outputs.model_dump(mode="json")


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(RECIPE, TINY)


@pytest.fixture(scope="module")
def stopped(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its first three steps."""
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    run_first_steps(recipe, run_dir)
    return run_dir


@pytest.fixture
def run_dir(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def states(recipe: Recipe, run_dir: Path) -> dict[str, str]:
    return {step.step: step.state for step in planned_steps(recipe, run_dir)}


def written(run_dir: Path) -> dict[str, int]:
    """Return the times of the files that the steps' manifest entries seal."""
    files = {run_dir / name for entry in last_entries(manifest.read(run_dir)).values() for name in entry.files}
    return {str(path): path.stat().st_mtime_ns for path in files}


def test_steps_that_the_plan_calls_finished_write_nothing_when_resumed(recipe: Recipe, stopped: Path) -> None:
    found = states(recipe, stopped)
    assert [step for step, state in found.items() if state == "finished"] == list(FIRST)
    assert set(list(found.values())[len(FIRST) :]) == {"runs"}
    before = written(stopped)
    run_first_steps(recipe, stopped)
    assert len(before) > len(FIRST)
    assert written(stopped) == before
    assert states(recipe, stopped) == found


def test_removed_index_is_planned_again(recipe: Recipe, run_dir: Path) -> None:
    for folder in run_dir.glob("index/*"):
        shutil.rmtree(folder)
    found = states(recipe, run_dir)
    assert (found["corpus"], found["policy"], found["index"]) == ("finished", "finished", "resumes")


def test_altered_file_of_a_finished_step_is_a_problem(recipe: Recipe, run_dir: Path) -> None:
    path = run_dir / "corpus/questions.train.jsonl"
    path.write_text(path.read_text() + "\n")
    planned = plan_here(recipe, run_dir)
    assert not planned.works
    assert "was altered after step corpus" in planned.problems[0]


def test_directory_of_another_recipe_and_one_in_use_are_problems(stopped: Path) -> None:
    other = load_recipe(RECIPE, [*TINY, "seed=7"])
    with locked(stopped):
        planned = plan_here(other, stopped)
    assert "belongs to a run with other parameters" in planned.problems[0]
    assert "another run is using this directory" in planned.problems[1]


def test_run_without_a_directory_leaves_none(recipe: Recipe, tmp_path: Path) -> None:
    assert set(states(recipe, tmp_path / "none").values()) == {"runs"}
    assert plan_here(recipe, tmp_path / "none").works
    assert not (tmp_path / "none").exists()


def test_needs_count_only_steps_that_have_not_finished(recipe: Recipe, tmp_path: Path) -> None:
    steps = planned_steps(recipe, tmp_path)
    whole = needs_of(recipe, tmp_path, steps, has_gpu=False)
    done = [step.model_copy(update={"state": "finished"}) if step.step == "train-01" else step for step in steps]
    trainings = sum(step.component == "train" for step in steps)
    rest = needs_of(recipe, tmp_path, done, has_gpu=False)
    assert rest.disk * trainings == pytest.approx(whole.disk * (trainings - 1), abs=trainings)
    assert (rest.memory, rest.downloads) == (whole.memory, ())


def test_disk_of_a_plan_is_at_most_the_weights_that_a_training_writes(recipe: Recipe, tmp_path: Path) -> None:
    weights = HOME / "platform_sdk/assets" / recipe.parameters["model"].removeprefix("hopforge:") / "model.safetensors"
    steps = [step for step in planned_steps(recipe, tmp_path) if step.step == "train-01"]
    needed = needs_of(recipe, tmp_path, steps, has_gpu=False).disk
    assert (
        weights.stat().st_size < needed <= 2 * weights.stat().st_size
    )  # shipped in half precision, trained in float32


def test_large_model_on_this_machine_is_a_problem_and_a_download(tmp_path: Path) -> None:
    recipe = load_recipe(RECIPE, [*TINY, "model=example/Nobody-700B"])
    needs = needs_of(recipe, tmp_path, planned_steps(recipe, tmp_path), has_gpu=False)
    assert needs.memory == 16 * 700e9
    [download] = needs.downloads
    assert (download.kind, download.name, download.least_bytes) == ("model", "example/Nobody-700B", int(1.4e12))
    small = needs.model_copy(update={"disk_free": GIB, "memory_total": GIB})
    assert ["free space" in fault or "more memory" in fault for fault in small.faults(tmp_path)] == [True, True]


def test_command_prints_json_and_exits_with_1_if_the_run_cannot_work(stopped: Path) -> None:
    overrides = [word for setting in TINY for word in ("--set", setting)]
    runner = CliRunner()
    well = runner.invoke(app, ["plan", str(RECIPE), "--workdir", str(stopped), "--json", *overrides])
    assert (well.exit_code, json.loads(well.stdout)["problems"]) == (0, [])
    shown = runner.invoke(app, ["plan", str(RECIPE), "--workdir", str(stopped), *overrides])
    assert shown.stdout.count("finished: a resumed run skips it") == len(FIRST)
    wrong = runner.invoke(app, ["plan", str(RECIPE), "--workdir", str(stopped), "--json"])
    assert (wrong.exit_code, len(json.loads(wrong.stdout)["problems"])) == (1, 1)
