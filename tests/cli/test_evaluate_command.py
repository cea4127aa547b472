"""``hopforge evaluate``: every method's pipeline trains nothing, and the questions are those asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.sampling.pairs import ROLES
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.journal import Journal, run_file, step_file
from tests.sealing import sealed

HOME = Path(__file__).parents[2]
RECIPES = ["mygo/world", "mygo/world-grpo", "arena/world", "arena-baselines/sft-reasoning-smollm2", "evipath/world",
           "prograph/world"]  # fmt: skip


def steps(*arguments: str) -> set[str]:
    done = CliRunner().invoke(app, ["evaluate", *arguments, "--dry-run", "--json"], catch_exceptions=False)
    return {step["step"] for step in json.loads(done.stdout)["steps"]}


@pytest.mark.parametrize("name", RECIPES)
def test_no_step_of_any_pipeline_trains(name: str) -> None:
    path = HOME / f"pipelines/{name}.yaml"
    found = steps("hopforge:world-base", "--recipe", str(path))
    whole = {task.id for task in load_recipe(path).plan}
    assert {"corpus", "policy", "eval-start", "report"} <= found <= whole
    # An online step of no updates passes its model on.
    assert found <= {"corpus", "policy", "graph", "index", "eval-start", "eval-final", "report", "online", "reward"}


def test_a_runs_own_recipe_answers_other_questions(tmp_path: Path) -> None:
    recipe = load_recipe(HOME / "pipelines/mygo/world.yaml")
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.resolved()))
    assert "sample-warmup" not in steps(str(tmp_path), "--environment", "musique", "--dataset", "musique=dev.jsonl")
    with pytest.raises(UserError, match="format"):
        steps(str(tmp_path), "--dataset", "squad=dev.json")
    with pytest.raises(UserError, match="must look like FORMAT=FILE"):
        steps(str(tmp_path), "--dataset", "musique")


def test_lack_of_a_run_is_told_at_the_line_of_its_own_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOPFORGE_DATA", raising=False)
    recipe = load_recipe(HOME / "pipelines/mygo/world.yaml")
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.resolved(), indent=1))
    Journal(run_file(sealed(tmp_path))).append("ended", status="FINISHED")
    arguments = ["evaluate", str(tmp_path), "--environment", "musique", "--dataset", "musique=dev.jsonl"]
    with pytest.raises(UserError, match=r"recipe\.json:\d+: dataset: its paths are relative to data_dir"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    # The remedy that the error names: the run's recipe records no data_dir.
    monkeypatch.setenv("HOPFORGE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"dataset\.eval: there is no file .*nowhere/dev\.jsonl"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_a_run_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe(HOME / "pipelines/arena/world.yaml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "recipe.json").write_text(json.dumps(recipe.resolved()))
    assert "eval-start" in steps("mine")


@pytest.mark.parametrize("name", ["run", "r😀n"])
def test_a_trained_pair_replaces_both_models_of_its_recipe(tmp_path: Path, name: str) -> None:
    recipe = load_recipe(HOME / "pipelines/mygo/world.yaml", ["worker_model=hopforge:world-base"])
    pair = tmp_path / name / "warmup/model"
    for role in ROLES:
        (pair / role).mkdir(parents=True)
        (pair / role / "model.safetensors").write_text(role)
    (tmp_path / name / "recipe.json").write_text(json.dumps(recipe.resolved()))
    run_dir = sealed(tmp_path / name)
    manifest.record(run_dir, f"{seals.STEP}train-warmup", {"weights": "w"}, seals.seal(run_dir, [pair]))
    Journal(step_file(run_dir, "train-warmup")).append("model", path=str(pair), digest="w")
    Journal(run_file(run_dir)).append("ended", status="FINISHED")
    assert {"policy", "eval-start"} <= steps(str(run_dir))


def test_run_that_was_made_again_has_an_evaluation_of_its_own(tmp_path: Path) -> None:
    def directory(weights: str) -> str:
        model = tmp_path / "warmup/model"
        model.mkdir(parents=True, exist_ok=True)
        (model / "model.safetensors").write_text(weights)
        (tmp_path / "recipe.json").write_text(json.dumps(load_recipe(HOME / "pipelines/mygo/world.yaml").resolved()))
        sealed(tmp_path)
        files = seals.seal(tmp_path, [model])
        manifest.record(tmp_path, f"{seals.STEP}train-warmup", {"weights": weights}, files)
        Journal(step_file(tmp_path, "train-warmup")).append("model", path=str(model), digest=weights)
        Journal(run_file(tmp_path)).append("ended", status="FINISHED")
        arguments = ["evaluate", str(tmp_path), "--dry-run", "--json"]
        return str(json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)["run_dir"])

    assert directory("first") == directory("first") != directory("second")


def test_a_run_of_an_own_pipeline_needs_its_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps({"pipeline": "one-search", "name": "x", "parameters": {}}))
    with pytest.raises(UserError, match=r"is a run of pipeline one-search, .* add --recipe FILE"):
        steps(str(tmp_path))


def test_a_model_needs_a_recipe() -> None:
    with pytest.raises(UserError, match="add --recipe, the recipe whose agent"):
        steps("hopforge:world-base")
