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
from platform_sdk.evaluation.comparison_text import cost_rows, headlines, score_rows, time_to_score
from platform_sdk.evaluation.seed_intervals import Estimator
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Question
from platform_sdk.tracking import manifest
from tests.evaluation.online_runs import question, update, write_evaluation
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
        manifest.record(run, "step train", {"parent_weights": "a" * 64, "weights": "b" * 64})
    with pytest.raises(UserError, match="base-1 and .*base-0 have trained equal weights"):
        compare(runs[:3])


def test_altered_runs_are_compared_on_request_with_a_warning(runs: list[Path]) -> None:
    path = runs[0] / "eval-final/scores.json"
    path.write_text(path.read_text() + " ")
    with pytest.raises(UserError, match="scores.json: was altered"):
        compare(runs[:3])
    [report] = compare(runs[:3], altered=True).altered
    assert report.startswith(f"{path}: was altered")


def test_runs_that_differ_in_the_seed_alone_are_one_group(runs: list[Path]) -> None:
    found = compare([runs[3], runs[0], runs[1], runs[4], runs[2]])
    members = [(group.name, tuple(run.seed for run in group.runs)) for group in found.groups]
    assert members == [(NAME, ("0", "1")), ("base", ("0", "1", "2"))]
    spread = found.groups[1].spreads["em"]
    assert spread.values == (0.2, 0.3, 0.4)
    assert spread.estimator is Estimator.SEEDS
    assert 0 == spread.low < spread.mean < spread.high < 1
    assert spread.mean == pytest.approx(0.3)
    [change] = [change for change in found.differences if change.metric == "em"]
    # Paired are seeds 0 and 1 alone: 2 and 3 of ten right against 7 and 9.
    assert change.difference == pytest.approx(-0.55)
    assert (change.estimator, change.paired_seeds) == (Estimator.PAIRED, ("0", "1"))
    assert change.high < 0
    assert found.recipes == (("parameters.beta", (0.1, 0.0)),)


def test_single_group_has_no_difference_and_single_seed_is_marked(runs: list[Path]) -> None:
    assert compare(runs[:3]).differences == ()
    assert headlines(compare(runs[:3])) == []
    found = compare(runs[:4])
    alone = found.groups[1].spreads["em"]
    assert (alone.mean, alone.estimator) == (0.7, Estimator.ONE_SEED)
    assert alone.low < 0.7 < alone.high
    # Paired is seed 0 alone: 7 against 2 of ten, not against the mean of three seeds.
    change = found.difference("em")
    assert (change.difference, change.estimator, change.paired_seeds) == (0.5, Estimator.ONE_SEED, ("0",))
    em = score_rows(found)[0]
    assert [cell.interval.endswith(", one seed") for cell in (*em.means, *em.differences)] == [False, True, True]


def test_groups_without_two_seeds_in_common_are_not_paired(tmp_path: Path) -> None:
    runs = [make_seed(tmp_path, "base", 0.0, seed, right) for seed, right in ((0, 2), (1, 3))]
    runs += [make_seed(tmp_path, NAME, 0.1, seed, right) for seed, right in ((1, 7), (2, 9))]
    change = compare(runs).difference("em")
    assert (change.estimator, change.paired_seeds) == (Estimator.UNPAIRED, ())
    assert change.difference == pytest.approx(0.55)
    estimator = "Interval over seeds and questions, seeds not paired, crossed random effects; 2 and 2 seeds."
    assert estimator in headlines(compare(runs))[0]


def test_cost_to_a_score_is_the_mean_over_the_seeds(tmp_path: Path) -> None:
    runs = []
    for group, beta, seconds in (("slow", 0.0, 9.0), ("fast", 0.1, 3.0)):
        for seed in (0, 1):
            run = make_seed(tmp_path, group, beta, seed, 6 + seed)
            (run / "online").mkdir()
            lines = [update(n, 4, sampling_seconds=seconds + seed) for n in (1, 2)]
            (run / "online/updates.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            runs.append(sealed(run))
    found = compare(runs, shown=65)  # 6 and 7 of ten in the end
    # An update takes 9 + seed or 3 + seed seconds of sampling, and 4 more.
    assert cost_rows(found) == [
        ["slow", "27.0 s", "16", "16", "1,600", "1,400", "8"],
        ["fast", "15.0 s", "16", "16", "1,600", "1,400", "8"],
    ]
    assert time_to_score(found).endswith("fast takes 44 % less time and as many trajectories.")
    assert compare(runs, shown=66).reached is not None
    assert [row[1] for row in cost_rows(compare(runs, shown=66))] == ["never", "never"]


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
    assert f"EM 30.0 for base and 80.0 for {NAME}: a difference of +55.0" in told.output
    assert "paired over 10 questions. Interval over seeds and questions, paired by seed" in told.output
    assert "crossed random effects; seeds 0, 1, which both have." in told.output
    assert "Cost up to EM 30.0" in told.output
    assert "The recipes differ in parameters.beta." in told.output
    assert page.read_text().startswith("<!doctype html>")
    plain = json.loads(invoke(app, ["compare", *map(str, runs), "--json"]).output)
    assert plain["groups"][0]["spreads"]["em"]["mean"] == pytest.approx(0.3)
    assert plain["groups"][0]["spreads"]["em"]["estimator"] == "seeds and questions, crossed random effects"
    assert plain["differences"][0]["paired_seeds"] == ["0", "1"]
    assert isinstance(invoke(app, ["compare", str(runs[0])]).exception, UserError)
    twice = invoke(app, ["compare", *map(str, (*runs, runs[0]))]).exception
    assert f"{runs[0]}: is named twice; name different runs" in str(twice)
    assert "EM 50.0 is first shown by base never" in invoke(app, ["compare", *map(str, runs), "--score", "50"]).output


def test_page_of_several_runs(open_page: Any, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror='window.hurt=1'>"
    runs = [make_seed(tmp_path, "base", 0.0, seed, right, hostile) for seed, right in enumerate((2, 3))]
    page = open_page(build_comparison(compare([*runs, *(make_seed(tmp_path, NAME, 0.1, s, 9 - s) for s in range(3))])))
    assert "a difference of +60.0" in page.inner_text(".verdict-line")
    assert page.locator("#costs tbody tr").count() == 2
    em = page.locator(".scores tbody tr").first.locator("th, td")
    assert [text.split(" ")[0] for text in em.all_inner_texts()] == ["EM", "25.0", "80.0", "+60.0"]
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
