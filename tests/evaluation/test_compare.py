"""Two runs side by side: an online run beside one of two iterations, both made by hand."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.comparison import compare
from platform_sdk.evaluation.comparison_page import build_comparison
from platform_sdk.evaluation.comparison_records import Comparison
from platform_sdk.evaluation.comparison_text import cost_rows, cost_title, headlines, spent_rows, time_to_score
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Question
from tests.evaluation.online_runs import make_online_run, question, update, write_evaluation, write_scores
from tests.refusals import refused
from tests.sealing import sealed

HOSTILE = "</script><script>window.hurt=1</script><img src=x onerror='window.hurt=2'>"


def make_offline_run(folder: Path, *, name: str = "offline", hostile: str = "") -> Path:
    """A warm-up of 20 s and two iterations of 30 s and 40 trajectories each; 2, 6 and 8 of ten questions right."""
    run_dir = folder / name
    (run_dir / "corpus").mkdir(parents=True)
    recipe = {
        "pipeline": "mygo",
        "name": name + hostile,
        "parameters": {"iterations": 2, "selection": {"reward": hostile}},
    }
    (run_dir / "recipe.json").write_text(json.dumps(recipe))
    write_jsonl(run_dir / "corpus" / "questions.eval.jsonl", Question, [question(n, hostile) for n in range(10)])
    for phase, right in (("eval-start", 2), ("eval-iteration-01", 6), ("eval-final", 8)):
        write_evaluation(run_dir, phase, right, hostile=hostile)
    for number, phase in enumerate(("warmup", "iteration-01", "iteration-02")):
        sampling, training, examples = (15.0, 5.0, 10) if phase == "warmup" else (18.0, 12.0, 40)
        figures = {"iteration": number, "rollouts": 50, "tokens_sampled": 5000, "sampling_seconds": sampling}
        trained = {"examples": examples, "tokens_trained": 1000, "training_seconds": training, "steps": 20}
        (run_dir / phase).mkdir()
        (run_dir / phase / "figures.json").write_text(json.dumps(figures))
        (run_dir / phase / "train.json").write_text(json.dumps(trained))
    return sealed(run_dir)


def means(found: Comparison) -> list[float]:
    return [group.spreads["em"].mean for group in found.groups]


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """The online run (20 updates of 10 s and 8 trajectories; 2, 5, 9 right) and the offline one."""
    return sealed(make_online_run(tmp_path)), make_offline_run(tmp_path)


def test_costs_equal_hand_computed_sums(runs: tuple[Path, Path]) -> None:
    found = compare(runs)
    online, offline = found.runs
    assert (online.steps, online.step) == (20, "update")
    assert (offline.steps, offline.step) == (2, "iteration")
    assert (online.cost.sampling_seconds, online.cost.training_seconds, online.cost.sync_seconds) == (120, 60, 20)
    assert (online.cost.seconds, offline.cost.seconds) == (200, 80)
    assert (online.preparation.seconds, offline.preparation.seconds) == (0, 20)
    assert (online.cost.rollouts, offline.cost.rollouts) == (160, 150)
    assert (online.cost.trajectories, offline.cost.trajectories) == (160, 90)
    assert (online.cost.tokens_sampled, offline.cost.tokens_sampled) == (16_000, 15_000)
    assert (online.cost.tokens_trained, offline.cost.tokens_trained) == (14_000, 3_000)
    rows = {row.name: row.change for row in spent_rows(found)}
    assert rows["time"] == "−60 %"
    assert rows["trajectories trained on"] == "−44 %"
    assert rows["rollouts sampled"] == "−6 %"


def test_preparation_of_a_credit_is_part_of_the_time_and_has_tokens_of_its_own(tmp_path: Path) -> None:
    runs = []
    for name, cost in (
        ("plain", {}),
        ("again", {}),
        ("credited", {"preparation": {"requests": 3, "tokens": 250, "seconds": 5.0}}),
    ):
        run_dir = make_online_run(tmp_path, updates=4, name=name)
        lines = [update(number, 4, **cost) for number in range(1, 5)]
        (run_dir / "online/updates.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        runs.append(sealed(run_dir))
    found = compare(runs[::2])
    plain, credited = (run.cost for run in found.runs)
    assert (plain.seconds, plain.credit_seconds, plain.credit_tokens) == (40, 0, 0)
    assert (credited.seconds, credited.credit_seconds, credited.credit_tokens) == (60, 20, 1000)
    assert plain.tokens_sampled == credited.tokens_sampled == 3200
    rows = {row.name: (row.first, row.second) for row in spent_rows(found)}
    assert rows["· preparing the credit"] == ("0.0 s", "20.0 s")
    assert rows["tokens sampled or scored for the credit"] == ("0", "1,000")
    assert "tokens sampled or scored for the credit" not in {row.name for row in spent_rows(compare(runs[:2]))}


def test_evaluations_are_placed_at_their_step_and_cost(runs: tuple[Path, Path]) -> None:
    found = compare(runs)

    def curve(run: Any) -> list[tuple[str, int, float, int, float]]:
        return [(t.phase, t.step, t.cost.seconds, t.cost.trajectories, t.scores["em"].value) for t in run.evaluations]

    assert curve(found.runs[0]) == [
        ("eval-start", 0, 0, 0, 0.2),
        ("eval-u0010", 10, 100, 80, 0.5),
        ("eval-final", 20, 200, 160, 0.9),
    ]
    assert curve(found.runs[1]) == [
        ("eval-start", 0, 20, 10, 0.2),
        ("eval-iteration-01", 1, 50, 50, 0.6),
        ("eval-final", 2, 80, 90, 0.8),
    ]


def test_phases_are_in_the_order_of_time(tmp_path: Path) -> None:
    run_dir = make_offline_run(tmp_path)
    (run_dir / "iteration-02").rename(run_dir / "iteration-100")
    (run_dir / "warmup").rename(run_dir / "teaching")
    write_evaluation(run_dir, "eval-iteration-100", 7)
    (run_dir / "iteration-99").mkdir()
    (run_dir / "iteration-99" / "figures.json").write_text('{"sampling_seconds": 7.0}')
    other = sealed(make_online_run(tmp_path))
    found = compare([sealed(run_dir), other]).runs[0].evaluations
    # 20 s of teaching, 30 s of iteration 1, 7 s of iteration 99, 30 s of iteration 100
    assert [(one.phase, one.cost.seconds) for one in found] == [
        ("eval-start", 0), ("eval-iteration-01", 50), ("eval-iteration-100", 87), ("eval-final", 87),
    ]  # fmt: skip


def test_scores_are_paired_by_question(runs: tuple[Path, Path]) -> None:
    found = compare(runs)
    assert [difference.metric for difference in found.differences] == ["em", "f1", "format", "reward"]
    em = found.difference("em")
    assert (em.n, *means(found)) == (10, 0.9, 0.8)
    assert em.difference == pytest.approx(-0.1)
    # One question of ten differs, by −1: a resample's difference is −k/10 with k binomial(10, 1/10), so that P(0) is
    # 0.35 and P(k ≥ 4) 0.013: the middle 95 % reach from −3/10 to 0.
    assert (em.low, em.high) == pytest.approx((-0.3, 0.0))
    assert em.p_value == pytest.approx(2 * 0.9**10, abs=0.02)
    assert found.counts == ("calls", "reward", "searches", "threads", "tokens", "tool_calls", "tool_errors", "turns")


def test_a_metric_that_some_questions_lack_is_paired_over_the_others(runs: tuple[Path, Path]) -> None:
    for run_dir, has in zip(runs, (range(8), range(2, 10)), strict=True):
        final = {f"q{n}": {"em": 1.0, **({"recall": n / 10} if n in has else {})} for n in range(10)}
        write_scores(run_dir, "eval-final", final)
        sealed(run_dir)
    found = compare(runs)
    assert found.difference("recall").n == 6
    assert found.difference("recall").difference == 0


def test_costs_until_a_score_is_reached_are_compared(runs: tuple[Path, Path]) -> None:
    reached = compare(runs).reached
    assert reached is not None
    assert reached.score == 0.8  # the highest that both show
    assert [each.phase for each in reached.groups if each] == ["eval-final", "eval-final"]
    assert (reached.ratio("seconds"), reached.ratio("trajectories")) == (80 / 200, 90 / 160)
    half = compare(runs, shown=50).reached
    assert half is not None
    assert (half.ratio("seconds"), half.ratio("trajectories")) == (50 / 100, 50 / 80)
    at_once = compare(runs, metric="reward", shown=3.0).reached
    assert at_once is not None
    assert at_once.ratio("seconds") is None  # the first shows it before it spent anything
    never = compare(runs, shown=85)
    assert never.reached is not None
    assert never.reached.groups[1] is None
    assert never.reached.ratio("seconds") is None
    assert cost_rows(never)[1] == ["offline", "never", "–", "–", "–", "–", "–"]
    assert "offline never" in time_to_score(never)


def test_costs_up_to_a_score_are_columns(runs: tuple[Path, Path]) -> None:
    found = compare(runs, shown=50)
    assert cost_title(found) == "Cost up to EM 50.0"
    # Ten updates of 4 optimiser steps each; a warm-up and an iteration of 20 steps each.
    assert cost_rows(found) == [
        ["online", "1.7 min", "80", "80", "8,000", "7,000", "40"],
        ["offline", "50.0 s", "100", "50", "10,000", "2,000", "40"],
    ]


def test_optimiser_steps_of_a_run_that_did_not_record_them_are_unknown(runs: tuple[Path, Path]) -> None:
    path = runs[0] / "online/updates.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[3]["optimizer_steps"]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    sealed(runs[0])
    found = compare(runs, shown=50)
    assert [row[-1] for row in cost_rows(found)] == ["–", "40"]
    assert spent_rows(found)[-1] == ("optimiser steps", "–", "60", "–")


def test_a_score_at_which_a_run_began_is_not_compared(runs: tuple[Path, Path]) -> None:
    write_evaluation(runs[0], "eval-start", 8)  # of 8, 5 and 9; the other run ends at 8
    sealed(runs[0])
    found = compare(runs)
    assert found.reached is None
    assert time_to_score(found).startswith("The runs have no EM in common that is above the first one of all")


def test_the_headline_is_the_paired_difference_of_the_last_scores(runs: tuple[Path, Path]) -> None:
    assert re.fullmatch(
        r"EM 90\.0 for online and 80\.0 for offline: a difference of −10\.0 \(95 %: −30\.0 to \+0\.0, p = 0\.\d+\), "
        r"paired over 10 questions\. Interval over questions alone \(one seed\), percentile bootstrap\. The interval "
        r"contains 0: the runs cannot be told apart\.",
        headlines(compare(runs))[0],
    )


def test_compare_sentence_states_savings_and_difference(runs: tuple[Path, Path]) -> None:
    assert time_to_score(compare(runs)) == (
        "EM 80.0 is first shown by online after 3.3 min and 160 trajectories (eval-final), and by offline after "
        "80.0 s and 90 trajectories (eval-final). offline takes 60 % less time and 44 % fewer trajectories."
    )
    assert time_to_score(compare(runs[::-1], shown=50)).endswith(
        "online takes 2 times the time and 60 % more trajectories."
    )


def test_runs_on_other_questions_are_refused(runs: tuple[Path, Path]) -> None:
    offline = runs[1]
    write_evaluation(offline, "eval-final", 8, questions=8)
    sealed(offline)
    with pytest.raises(UserError, match=r"2 questions were asked in .*online alone \(q8, q9\)"):
        compare(runs)
    write_evaluation(offline, "eval-final", 8)
    changed = [question(n).model_copy(update={"answers": ("Oslo",)} if n < 4 else {}) for n in range(10)]
    write_jsonl(offline / "corpus" / "questions.eval.jsonl", Question, changed)
    sealed(offline)
    with pytest.raises(UserError, match=r"4 questions of equal ids differ in their answers \(q0, q1, q2, …\)"):
        compare(runs)


def test_runs_without_a_common_metric_or_evaluation_are_refused(runs: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match="must have measured joint; they have in common: em, f1, format, reward"):
        compare(runs, metric="joint")
    for path in runs[1].glob("eval-*/scores.json"):
        path.unlink()
    sealed(runs[1])
    with refused("compare.no-evaluation"):
        compare(runs)


def test_unfinished_run_is_compared_by_its_last_evaluation(runs: tuple[Path, Path]) -> None:
    (runs[0] / "eval-final" / "scores.json").unlink()
    sealed(runs[0])
    found = compare(runs)
    assert (found.runs[0].last.phase, found.runs[1].last.phase) == ("eval-u0010", "eval-final")
    assert means(found) == [0.5, 0.8]


@pytest.mark.parametrize("shown", [float("nan"), float("inf"), -5.0, 1e9, 100.1])
def test_score_that_no_run_can_have_is_refused(shown: float, runs: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match=r"--score .*: is not a score of em; give a number from 0 to 100"):
        compare(runs, shown=shown)


def test_run_compared_with_itself_or_its_copy_is_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is named twice"):
        compare([runs[0], runs[0].parent / "." / runs[0].name])
    shutil.copytree(runs[0], tmp_path / "copy")
    with pytest.raises(UserError, match="copy: is a copy of "):
        compare([runs[0], tmp_path / "copy"])


def test_compare_names_the_differences_of_the_recipes(runs: tuple[Path, Path]) -> None:
    assert compare(runs).recipes == (
        ("parameters.beta", (0.04, "(absent)")),
        ("parameters.iterations", ("(absent)", 2)),
        ("parameters.selection", ("(absent)", {"reward": ""})),
        ("pipeline", ("arena", "mygo")),
    )


def test_runs_of_equal_name_are_named_by_their_paths(tmp_path: Path) -> None:
    runs = [make_offline_run(tmp_path / seed, name="same") for seed in ("a", "b")]
    found = compare(runs)
    assert [group.name for group in found.groups] == [str(run) for run in runs]
    assert [difference.difference for difference in found.differences] == [0, 0, 0, 0]
    assert found.recipes == ()


def test_compare_command_prints_table_json_and_page(runs: tuple[Path, Path], tmp_path: Path) -> None:
    run = CliRunner().invoke
    arguments = ["compare", *map(str, runs)]
    table = run(app, arguments, env={"COLUMNS": "120"})
    assert table.exit_code == 0, table.output
    words = " ".join(table.output.split())
    assert "time 3.3 min 80.0 s −60 %" in words
    assert "EM 90.0 80.0 −10.0 −30.0 to +0.0" in words
    assert "60 % less time and 44 % fewer trajectories" in words
    assert "Cost up to EM 80.0 time rollouts trajectories tokens sampled tokens trained on optimiser steps" in words
    assert "offline 80.0 s 150 90 15,000 3,000 60" in words
    assert "a difference of −10.0" in words
    assert "The recipes differ in parameters.beta, parameters.iterations, parameters.selection, pipeline." in words
    page = tmp_path / "page.html"
    plain = json.loads(run(app, [*arguments, "--json", "--score", "50", "-o", str(page)]).output)
    assert plain["reached"]["score"] == 0.5
    assert plain["groups"][0]["runs"][0]["cost"]["trajectories"] == 160
    assert plain["reached"]["groups"][1]["cost"]["optimizer_steps"] == 40
    assert plain["differences"][0]["estimator"] == "questions alone (one seed), percentile bootstrap"
    assert page.read_text().startswith("<!doctype html>")


def test_compare_page_shows_scores_and_costs(open_page: Any, tmp_path: Path) -> None:
    online = sealed(make_online_run(tmp_path, hostile=HOSTILE))
    offline = make_offline_run(tmp_path, hostile=HOSTILE)
    page = open_page(build_comparison(compare([online, offline])))
    assert "a difference of −10.0" in page.inner_text(".verdict-line")
    assert "60 % less time and 44 % fewer trajectories" in page.inner_text(".lead:last-of-type")
    assert HOSTILE in page.inner_text("h1")
    assert page.locator("#curves figure figcaption").all_inner_texts() == [
        f"{metric} against {cost}"
        for metric in ("EM", "F1")
        for cost in ("time", "rollouts", "sampled tokens", "trajectories")
    ]
    assert page.locator("#curves figure").first.locator("circle").count() == 6
    assert page.locator("#recipes tbody tr").count() == 4
    page.click("#curves summary")
    assert "eval-iteration-01\t1\t50.0 s\t50\t100" in page.inner_text("#curves tbody")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#theme")
    assert page.evaluate(background) != light
    for width in (1200, 700, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0
