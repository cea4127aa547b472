"""Several runs and seeds on one page: two recipes of three and two seeds, made by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.comparison import compare
from platform_sdk.evaluation.comparison_page import build_comparison
from platform_sdk.evaluation.comparison_text import headlines
from platform_sdk.evaluation.intervals import interval_over_seeds, paired_bootstrap, paired_over_seeds
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Question
from platform_sdk.tracking import manifest
from tests.evaluation.online_runs import question, write_evaluation
from tests.sealing import sealed

NAME = "a-recipe-with-a-long-name-that-a-table-of-a-terminal-would-cut"


def make_seed(folder: Path, recipe: str, beta: float, seed: int, right: int, hostile: str = "") -> Path:
    """Return a run of ten questions, the first ``right`` of them right in the end."""
    run_dir = folder / f"{recipe}-{seed}"
    (run_dir / "corpus").mkdir(parents=True)
    found = {"pipeline": "p", "name": recipe + hostile, "parameters": {"beta": beta, "seed": seed}}
    (run_dir / "recipe.json").write_text(json.dumps(found))
    write_jsonl(run_dir / "corpus" / "questions.eval.jsonl", Question, [question(n) for n in range(10)])
    write_evaluation(run_dir, "eval-start", 1)
    write_evaluation(run_dir, "eval-final", right)
    return sealed(run_dir)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Return runs of 2, 3 and 4 right of ten with one recipe, and of 7 and 9 right with another."""
    first = [make_seed(tmp_path, "base", 0.0, seed, right) for seed, right in enumerate((2, 3, 4))]
    return [*first, *(make_seed(tmp_path, NAME, 0.1, seed, right) for seed, right in enumerate((7, 9)))]


def test_copies_of_a_run_are_never_several_seeds(runs: list[Path], tmp_path: Path) -> None:
    for number in (1, 2):
        copied = tmp_path / f"copy-{number}"
        shutil.copytree(runs[0], copied)
        recipe = json.loads((copied / "recipe.json").read_text())
        recipe["parameters"]["seed"] = number
        (copied / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(UserError, match=r"copy-1/recipe\.json: was altered after the run was started"):
        compare([runs[0], tmp_path / "copy-1", tmp_path / "copy-2"])
    with pytest.raises(UserError, match="base-0: is named twice; name different runs"):
        compare([runs[0], runs[1], runs[0]])


def test_runs_that_trained_equal_weights_are_not_two_seeds(runs: list[Path]) -> None:
    for run in runs[:2]:
        manifest.append(run, "step train", {"parent_weights": "a" * 64, "weights": "b" * 64})
    with pytest.raises(UserError, match="base-1 and .*base-0 have trained equal weights"):
        compare(runs[:3])


def test_altered_runs_are_compared_on_request_with_a_warning(runs: list[Path]) -> None:
    path = runs[0] / "eval-final/scores.json"
    path.write_text(path.read_text() + " ")
    with pytest.raises(UserError, match="scores.json: was altered"):
        compare(runs[:3])
    [report] = compare(runs[:3], altered=True).altered
    assert report.startswith(f"{path}: was altered")


def test_interval_over_seeds_is_students() -> None:
    # Mean 0.3, deviation 0.1: 4.303 · 0.1 / √3 to either side.
    expected = pytest.approx((0.3 - 0.248414, 0.3 + 0.248414), abs=1e-5)
    assert interval_over_seeds([0.2, 0.3, 0.4], share=True) == expected
    with pytest.raises(ValueError, match="at least two"):
        interval_over_seeds([0.5], share=True)


def test_interval_over_seeds_of_a_share_is_within_its_bounds() -> None:
    # Mean 0.5 or 2, 12.706 · 0.5 to either side.
    assert interval_over_seeds([0.0, 1.0], share=True) == (0, 1)
    assert interval_over_seeds([1.5, 2.5], share=False) == pytest.approx((2 - 6.3531, 2 + 6.3531), abs=1e-4)


def test_paired_difference_is_students_over_questions_and_seeds() -> None:
    # Questions differ alike; the seeds' means are 1 and 1/2, and 0 and 1/2: each group's variance is 1/8, of its mean
    # 1/16. So t has (2/16)² / (2 · (1/16)²) = 2 degrees of freedom, 97.5 % quantile 4.302653, deviation √(1/8).
    found = paired_over_seeds([[1, 1], [0, 1]], [[0, 0], [0, 1]])
    assert found.difference == 0.5
    assert (found.low, found.high) == pytest.approx((0.5 - 1.521218, 0.5 + 1.521218), abs=1e-5)
    # P(|t| > √2) of 2 degrees of freedom is 1 - √2/√(2 + 2).
    assert found.p_value == pytest.approx(1 - 0.5**0.5, abs=1e-6)
    one, other = [1.0, 0.0, 0.5, 1.0], [0.0, 0.0, 1.0, 0.5]
    assert paired_over_seeds([one], [other]) == pytest.approx(paired_bootstrap(one, other))
    with pytest.raises(ValueError, match="same questions"):
        paired_over_seeds([one], [[1.0]])


def test_runs_that_differ_in_the_seed_alone_are_one_group(runs: list[Path]) -> None:
    found = compare([runs[3], runs[0], runs[1], runs[4], runs[2]])
    members = [(group.name, tuple(run.seed for run in group.runs)) for group in found.groups]
    assert members == [(NAME, ("0", "1")), ("base", ("0", "1", "2"))]
    spread = found.groups[1].spreads["em"]
    assert spread.values == (0.2, 0.3, 0.4)
    assert (spread.mean, spread.low, spread.high) == pytest.approx((0.3, 0.3 - 0.248414, 0.3 + 0.248414), abs=1e-5)
    [change] = [change for change in found.differences if change.metric == "em"]
    assert change.difference == pytest.approx(-0.5)
    assert change.high < 0
    assert found.recipes == (("parameters.beta", (0.1, 0.0)),)


def test_single_group_has_no_difference_and_single_seed_no_interval(runs: list[Path]) -> None:
    assert compare(runs[:3]).differences == ()
    assert headlines(compare(runs[:3])) == []
    alone = compare(runs[:4]).groups[1].spreads["em"]
    assert (alone.mean, alone.low, alone.high) == (0.7, None, None)


def test_runs_on_other_questions_are_refused(runs: list[Path]) -> None:
    write_evaluation(runs[4], "eval-final", 8, questions=8)
    sealed(runs[4])
    with pytest.raises(UserError, match="2 questions were asked in"):
        compare(runs)
    with pytest.raises(UserError, match="must have measured joint; they have in common: em, f1"):
        compare(runs[:4], metric="joint")


def test_command_compares_several_runs(runs: list[Path], tmp_path: Path) -> None:
    invoke = CliRunner().invoke
    page = tmp_path / "page.html"
    told = invoke(app, ["compare", *map(str, runs), "-o", str(page)], env={"COLUMNS": "100"})
    assert told.exit_code == 0, told.output
    assert f"EM 30.0 for base and 80.0 for {NAME}: a difference of +50.0" in told.output
    assert "paired over 10 questions, 3 and 2 seeds." in told.output
    assert "The recipes differ in parameters.beta." in told.output
    assert page.read_text().startswith("<!doctype html>")
    plain = json.loads(invoke(app, ["compare", *map(str, runs), "--json"]).output)
    assert plain["groups"][0]["spreads"]["em"]["mean"] == pytest.approx(0.3)
    assert isinstance(invoke(app, ["compare", str(runs[0])]).exception, UserError)
    twice = invoke(app, ["compare", *map(str, (*runs, runs[0]))]).exception
    assert f"{runs[0]}: is named twice; name different runs" in str(twice)
    assert isinstance(invoke(app, ["compare", *map(str, runs), "--score", "50"]).exception, UserError)


def test_page_of_several_runs(open_page: Any, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror='window.hurt=1'>"
    runs = [make_seed(tmp_path, "base", 0.0, seed, right, hostile) for seed, right in enumerate((2, 3))]
    page = open_page(build_comparison(compare([*runs, *(make_seed(tmp_path, NAME, 0.1, s, 9 - s) for s in range(3))])))
    assert "a difference of +55.0" in page.inner_text(".verdict-line")
    assert page.locator(".scores tbody tr").first.locator("th, td").all_inner_texts() == [
        "EM", "25.0 0.0 to 88.5", "80.0 55.2 to 100.0", "+55.0 " + page.inner_text(".scores td:last-child small")
    ]  # fmt: skip
    assert page.locator("#runs tbody tr").count() == 5
    curves = page.locator("#curves figure")
    assert curves.locator("figcaption").all_inner_texts() == [
        f"{metric} against {cost}"
        for metric in ("EM", "F1")
        for cost in ("time", "rollouts", "sampled tokens", "trajectories")
    ]
    assert curves.first.locator(".legend > span").count() == 2
    assert curves.first.locator("path.curve").count() == 5
    tips = curves.first.locator("circle title").evaluate_all("all => all.map(one => one.textContent)")
    assert [tip for tip in tips if tip.startswith(f"{NAME}, seed 2")] == [
        f"{NAME}, seed 2, seconds 0: 0.1",
        f"{NAME}, seed 2, seconds 0: 0.7",
    ]
    assert NAME in page.inner_text("h1")
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0
    for width in (1200, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
