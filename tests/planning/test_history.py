"""Medians of earlier runs, in a folder of run directories and on a real MLflow server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.files import read_object
from platform_sdk.planning.history import EarlierRuns, earlier_runs
from platform_sdk.tracking import finish_run, start_run, step_run
from platform_sdk.tracking.journal import event_line, run_file
from platform_sdk.tracking.runs import Status
from tests.tracking.mlflow_process import plain_mlflow

HOME = Path(__file__).parents[2]


def recipe_with(*overrides: str) -> Recipe:
    return load_recipe(HOME / "pipelines/arena/world.yaml", overrides, {})


def record_run(run_dir: Path, recipe: Recipe, status: Status, gpu_hours: float | None = None) -> None:
    """Record a run of one step."""
    run_dir.mkdir(parents=True)
    (run_dir / "recipe.json").write_text(json.dumps(recipe.resolved()))
    start_run(run_dir, recipe.resolved(), follow=False)
    with step_run(run_dir, "online-online") as step:
        if gpu_hours is not None:
            step.record_gpu_hours("job of the step", gpu_hours)
    finish_run(run_dir, status)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs with two seeds and another name, a failed run, and a run with other settings."""
    folder = tmp_path_factory.mktemp("runs")
    _record_runs(folder)
    return folder


def _record_runs(folder: Path) -> None:
    record_run(folder / "one", recipe_with("seed=1"), "FINISHED", 2.0)
    record_run(folder / "two", recipe_with("seed=2"), "FINISHED", 4.0)
    record_run(folder / "three", recipe_with("seed=3"), "FINISHED")
    record_run(folder / "failed", recipe_with(), "FAILED", 100.0)
    record_run(folder / "larger", recipe_with("online.updates=99"), "FINISHED", 100.0)


def test_finished_runs_with_equal_settings_of_a_folder_are_counted(folder: Path) -> None:
    found = earlier_runs(recipe_with("seed=7"), folder)
    assert (found.runs, found.gpu_hours, found.gpu_hour_runs, found.note) == (3, 3.0, 2, "")
    assert 0 < (found.seconds or 0.0) < 60
    assert earlier_runs(recipe_with("online.updates=99"), folder).runs == 1


def test_pause_of_a_stopped_run_is_not_counted(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    record_run(run_dir, recipe_with(), "FINISHED")
    # Stopped after 10 s, killed after an unknown time an hour later, and finished in 20 s another hour later.
    states = [("started", 0), ("ended", 10), ("started", 3_600), ("started", 7_200), ("ended", 7_220)]
    lines = [event_line(1000 * at, {"event": event, "status": "FINISHED"}) for event, at in states]
    run_file(run_dir).write_text("".join(f"{line}\n" for line in lines))
    assert earlier_runs(recipe_with(), tmp_path).seconds == 30


def test_folder_without_runs_gives_nothing(folder: Path, tmp_path: Path) -> None:
    assert earlier_runs(recipe_with(), tmp_path) == EarlierRuns()
    assert earlier_runs(recipe_with("online.updates=98"), folder) == EarlierRuns()
    assert earlier_runs(recipe_with(), None).note == "MLFLOW_TRACKING_URI names no MLflow server"


def test_server_that_does_not_answer_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    found = earlier_runs(recipe_with(), None)
    assert (found.runs, found.note.startswith("MLflow server http://127.0.0.1:1: ")) == (0, True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with plain_mlflow(tmp_path) as url:
        yield url


@pytest.mark.e2e(minutes=1)
def test_medians_come_from_a_real_mlflow_server(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    _record_runs(tmp_path / "runs")
    found = earlier_runs(recipe_with("seed=7"), None)
    assert (found.runs, found.gpu_hours, found.gpu_hour_runs, found.note) == (3, 3.0, 2, "")
    events = [json.loads(line) for line in (tmp_path / "runs/two/tracking/run.jsonl").read_text().splitlines()]
    assert read_object(tmp_path / "runs/two/recipe.json")["parameters"]["seed"] == 2
    longest = max(event["time"] for event in events) - min(event["time"] for event in events)
    assert found.seconds is not None
    assert found.seconds <= longest / 1000 * 10
