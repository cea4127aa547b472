"""Altered files of a run reach no reader without a warning, whichever command reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.files import write_text
from platform_sdk.tracking.opened import run_of
from tests.commands import refusal, succeed_here
from tests.e2e.runs import ROOT
from tests.methods.finished_run import finished_run, seal_run

PREDICTIONS = "eval-final/predictions-world.json"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A finished run with predictions."""
    made = finished_run(tmp_path, "arena")
    question = json.loads((made / "corpus/questions.eval.jsonl").read_text().splitlines()[1])
    (tmp_path / "gold.json").write_text(json.dumps([
        {"_id": question["id"], "question": "?", "answer": "Oslo", "supporting_facts": [], "context": []}
    ]))  # fmt: skip
    write_text(made / PREDICTIONS, json.dumps({"answer": {question["id"]: "Rome"}, "sp": {}}))
    seal_run(made)
    return made


def test_metrics_of_altered_predictions_are_refused_or_marked(run_dir: Path) -> None:
    command = ("metrics", "hotpotqa", "--gold", run_dir.parent / "gold.json", "--predictions", run_dir / PREDICTIONS)
    sound = CliRunner().invoke(app, [*map(str, command), "--json"])
    assert json.loads(sound.stdout)["em"] == 0.0
    path = run_dir / PREDICTIONS
    path.write_text(path.read_text().replace("Rome", "Oslo"))
    assert f"{PREDICTIONS}: was altered after step eval-final" in refusal(*command)
    marked = CliRunner().invoke(app, [*map(str, command), "--json", "--altered"])
    assert json.loads(marked.stdout)["em"] == 1.0
    assert PREDICTIONS in json.loads(marked.stdout)["altered"][0]
    assert f"warning: {path}" in marked.stderr


@pytest.mark.parametrize("removed", ["", "recipe.json", "manifest.jsonl", "tracking/run.jsonl"])
def test_run_of_a_file_is_found_without_any_one_of_its_records(run_dir: Path, removed: str, tmp_path: Path) -> None:
    if removed:
        (run_dir / removed).unlink()
    (tmp_path / "link.json").symlink_to(run_dir / PREDICTIONS)
    for path in (run_dir, run_dir / PREDICTIONS, tmp_path / "link.json"):
        assert run_of(path) == run_dir
    assert run_of(tmp_path / "gold.json") is None


def examples_of(run_dir: Path) -> Path:
    """Write the reasoning paths of a run, and seal them as its step does."""
    write_text(run_dir / "synthesis/examples.jsonl", '{"format":"hopforge-example","version":1}\n')
    seal_run(run_dir)
    return run_dir / "synthesis/examples.jsonl"


@pytest.mark.parametrize("named", ["", "synthesis"])
def test_chats_of_a_run_with_altered_files_are_refused(named: str, tmp_path: Path) -> None:
    run_dir = finished_run(tmp_path, "evipath")
    path = examples_of(run_dir)
    path.write_text(path.read_text() + "\n")
    told = refusal("export", run_dir / named, "--format", "messages", "-o", tmp_path / "chats.jsonl")
    assert "synthesis/examples.jsonl: was altered after step corpus" in told
    assert not (tmp_path / "chats.jsonl").exists()


def test_graph_of_a_run_with_altered_files_is_refused(tmp_path: Path) -> None:
    run_dir = finished_run(tmp_path, "mygo-text")
    recipe = ROOT / "pipelines/mygo/world-text.yaml"
    (run_dir / "corpus/passages.jsonl").write_text("altered")
    told = refusal("graph", "stats", "--recipe", recipe, "--workdir", run_dir)
    assert "corpus/passages.jsonl: was altered after step corpus" in told


def test_data_of_a_run_whose_recipe_is_missing_is_not_prepared_again(tmp_path: Path) -> None:
    run_dir = finished_run(tmp_path, "mygo")
    (run_dir / "recipe.json").unlink()
    told = refusal("recall", "--recipe", ROOT / "pipelines/mygo/world.yaml", "--workdir", run_dir)
    assert "recipe.json: is missing, but the manifest reports a started run" in told


def alter_passages(run_dir: Path) -> str:
    path = run_dir / "corpus/passages.jsonl"
    header, first, rest = path.read_text().split("\n", 2)
    path.write_text(f"{header}\n{first.replace(' is ', ' was ')}\n{rest}")
    return "corpus/passages.jsonl"


def alter_recipe(run_dir: Path) -> str:
    recipe = json.loads((run_dir / "recipe.json").read_text())
    recipe["parameters"]["online"]["updates"] = 123
    (run_dir / "recipe.json").write_text(json.dumps(recipe))
    return "recipe.json"


@pytest.mark.e2e(minutes=1)
@pytest.mark.parametrize("alter", [alter_passages, alter_recipe])
def test_evaluation_of_an_altered_run_carries_the_warning_in_every_output(
    alter: Callable[[Path], str], run_dir: Path
) -> None:
    file = alter(run_dir)
    evaluation, card = run_dir.parent / "evaluation", run_dir.parent / "model"
    evaluate = ("evaluate", run_dir, "--workdir", evaluation, "--set", "dataset.world.eval_questions=2")
    told = refusal(*evaluate)
    assert file in told
    assert "or add --altered to read the run as it is" in told
    assert not evaluation.exists()

    planned = succeed_here(*evaluate, "--altered", "--dry-run", "--json")
    assert file in json.loads(planned.stdout)["altered"][0]
    printed = succeed_here(*evaluate, "--altered")
    assert f"warning: {run_dir / file}" in printed.stderr
    as_json = succeed_here(*evaluate, "--altered", "--json")
    assert file in json.loads(as_json.stdout)["altered"][0]
    assert f"warning: {run_dir / file}" in as_json.stderr

    warning = f"Warning: the evaluated run {run_dir} has altered files: {run_dir / file}"
    assert warning in (evaluation / "report.html").read_text()
    succeed_here("report", evaluation, "-o", run_dir.parent / "again.html")
    assert warning in (run_dir.parent / "again.html").read_text()
    succeed_here("export", evaluation, "-o", card)
    assert warning in (card / "README.md").read_text()


@pytest.mark.parametrize("command", ["ask", "export", "report"])
def test_every_output_of_a_command_on_an_altered_run_carries_the_warning(command: str, run_dir: Path) -> None:
    path, out = run_dir / alter_passages(run_dir), run_dir.parent / "out"
    arguments = (run_dir, "Who?", "--json") if command == "ask" else (run_dir, "-o", out)
    assert str(path) in refusal(command, *arguments)
    done = CliRunner().invoke(app, [command, *map(str, arguments), "--altered"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert f"warning: {path}" in done.stderr
    page = out / "README.md" if command == "export" else out
    text = page.read_text() if out.exists() else "".join(json.loads(done.stdout)["altered"])
    assert str(path) in text


@pytest.mark.parametrize("command", ["ask", "export"])
def test_altered_settings_of_the_evaluation_are_named_with_and_without_the_option(command: str, run_dir: Path) -> None:
    path, out = run_dir / "eval-final/evaluate-step.json", run_dir.parent / "out"
    step = json.loads(path.read_text())
    path.write_text(json.dumps(step | {"seed": step["seed"] + 1}))
    arguments = (run_dir, "Who?", "--json") if command == "ask" else (run_dir, "-o", out)
    assert f"{path}: was altered after step eval-final" in refusal(command, *arguments)
    done = CliRunner().invoke(app, [command, *map(str, arguments), "--altered"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert f"warning: {path}: was altered after step eval-final" in done.stderr
    shown = (out / "README.md").read_text() if command == "export" else "".join(json.loads(done.stdout)["altered"])
    assert str(path) in shown
