"""Digests of the settings of a run's steps: equal on a machine and on a cluster, and each step's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.plan import make_plan
from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.config.task import Task
from platform_sdk.execution.plan import inputs_of, read_plan, settings_of, write_plan
from platform_sdk.execution.worker import run_task
from platform_sdk.tracking import manifest, step_run

PIPELINES = Path(__file__).parents[2] / "pipelines"


def outputs(value: str) -> Mapping[str, Mapping[str, Any]]:
    """Return outputs of every task that are all this value."""
    return defaultdict(lambda: defaultdict(lambda: value))


def settings(tasks: list[Task], recipe: Recipe, run_dir: Path, value: str = "a") -> dict[str, str]:
    return {task.id: settings_of(task, inputs_of(task, recipe.parameters, run_dir, outputs(value))) for task in tasks}


@pytest.mark.parametrize("name", ["mygo/world", "arena/world", "react/world"])
def test_settings_depend_on_neither_paths_nor_other_steps_nor_the_place(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(PIPELINES / f"{name}.yaml", ["data_dir=/data/one"])
    local = settings(list(recipe.plan), recipe, tmp_path / "one")
    moved = load_recipe(PIPELINES / f"{name}.yaml", ["data_dir=/data/other"])
    assert settings(list(moved.plan), moved, tmp_path / "other", "b") == local
    plan, problems = make_plan(recipe.pipeline, recipe.parameters)
    assert not problems
    write_plan(tmp_path, plan, recipe.parameters)
    assert settings(list(read_plan(tmp_path).tasks), recipe, tmp_path, "c") == local
    assert len(set(local.values())) == len(local), "two steps of a run never have the same settings"


def test_entry_of_a_step_has_the_settings_that_its_executor_gave(tmp_path: Path) -> None:
    world = {"format": "world", "world": {"entities": 20, "train_questions": 2, "eval_questions": 2}}
    inputs = {"run_dir": str(tmp_path), "dataset": world, "data_dir": ""}
    assert run_task("corpus", inputs, "5" * 64).error == ""
    [entry] = manifest.read(tmp_path)
    assert entry.settings == "5" * 64
    with step_run(tmp_path, "by-hand"):
        pass
    assert manifest.read(tmp_path)[-1].settings == "", "the context has ended, and no start records a recipe"


def test_a_setting_changes_the_digests_of_the_steps_that_have_it(tmp_path: Path) -> None:
    found = []
    for rate in ("1e-4", "2e-4"):
        recipe = load_recipe(PIPELINES / "mygo/world.yaml", [f"training.learning_rate={rate}"])
        found.append(settings(list(recipe.plan), recipe, tmp_path))
    changed = {task for task, digest in found[0].items() if found[1][task] != digest}
    assert changed
    assert all(task.startswith("train") for task in changed)
    assert "train-warmup" not in changed, "the warm-up has settings of its own"
