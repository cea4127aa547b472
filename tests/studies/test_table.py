"""A study's table: numbers worked out by hand, in every format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from scipy.special import stdtr

from platform_sdk.errors import UserError
from platform_sdk.evaluation.seed_intervals import Estimator
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Question
from platform_sdk.studies.formats import FORMATS
from platform_sdk.studies.study import load_study
from platform_sdk.studies.table import StudyTable, tabulate
from tests.evaluation.online_runs import question, update, write_evaluation
from tests.sealing import sealed
from tests.studies.test_study import write_study

AXES = {"method": {"GRPO": {}, "MyGO & <co>": {"settings": {"rate": 0.9}}, "later": {"settings": {"rate": 0.8}}}}
PUBLISHED = [{"method": "MyGO & <co>", "em": 77.6}]


def make_run(folder: Path, right: int, questions: int = 10) -> Path:
    """Return a run whose last evaluation has the first ``right`` of its questions right."""
    run_dir = folder / f"run-{right}-{questions}"
    (run_dir / "corpus").mkdir(parents=True)
    (run_dir / "recipe.json").write_text(json.dumps({"pipeline": "p", "name": "n", "parameters": {}}))
    write_jsonl(run_dir / "corpus/questions.eval.jsonl", Question, [question(n) for n in range(questions)])
    write_evaluation(run_dir, "eval-final", right, questions=questions)
    return sealed(run_dir)


def make_table(folder: Path, *runs: Path) -> StudyTable:
    """Return the table of a study whose first cells are these runs: each place has two seeds."""
    fields = {"axes": AXES, "baseline": {"method": "GRPO"}, "published": PUBLISHED, "metrics": ["em"]}
    study = load_study(write_study(folder, settings={"rate": 0.5}, **fields), folder)
    return tabulate(study, dict(zip(study.cells, runs, strict=False)))


@pytest.fixture
def table(tmp_path: Path) -> StudyTable:
    """Return a table of 2 and 4 of ten right with GRPO, of 6 and 8 with MyGO, and of a third that has not run."""
    return make_table(tmp_path, *(make_run(tmp_path, right) for right in (2, 4, 6, 8)))


def test_means_intervals_and_paired_differences(table: StudyTable) -> None:
    grpo, mygo, later = (row.metrics["em"] for row in table.rows)
    # Seeds' means 0.2 and 0.4: variance 0.02, of their mean 0.01. Questions' means are 1 twice, 1/2 twice, 0 six times:
    # variance 0.177778, of their mean 0.0177778, of which the residual is 0.00888889: the seeds' part is 0.5294, its
    # weight 0.412157, and the critical value between 12.7062 (1 degree of freedom) and 2.2622 (9) is 6.5667. A mean of
    # shares is not beyond 0 and 1, as 0.3 ± 6.57 · 0.137 would be.
    assert (grpo.mean, grpo.low, grpo.high) == (pytest.approx(0.3), 0, 1)
    assert grpo.estimator is Estimator.SEEDS
    assert grpo.paired is None
    assert mygo.mean == pytest.approx(0.7)
    # The differences of both seeds are 0.4, so the seeds' variance is 0. Of the ten questions' differences four are 0,
    # four 0.5 and two 1: variance 1.4 / 9, of their mean 0.0155556, of which the residual is 0.0111111 (four questions
    # of ±0.5 with each seed: squares add up to 2, with 9 degrees of freedom 2 / 9, of 20 values 0.0111111). The root of
    # the rest is 0.0666667, and 2.2622 the 97.5 % quantile of 9 degrees of freedom.
    assert mygo.paired is not None
    assert mygo.paired.difference == pytest.approx(0.4)
    assert (mygo.paired.low, mygo.paired.high) == pytest.approx((0.4 - 0.150811, 0.4 + 0.150811), abs=1e-5)
    assert mygo.paired.p_value == pytest.approx(2 * stdtr(9, -6), abs=1e-9)
    assert (mygo.paired.estimator, mygo.paired.paired_seeds) == (Estimator.PAIRED, ("0", "1"))
    assert (later.mean, later.paired) == (None, None)
    assert table.missing == ("later, seed 0", "later, seed 1")


def test_average_over_an_axis_has_the_mean_difference_of_its_levels(tmp_path: Path) -> None:
    levels = {
        "method": {"GRPO": {}, "MyGO": {"settings": {"rate": 0.9}}},
        "world": {"1": {}, "2": {"settings": {"spec.batch_size": 5}}},
    }
    fields = {"axes": levels, "baseline": {"method": "GRPO"}, "average": "world", "metrics": ["em"]}
    study = load_study(write_study(tmp_path, settings={"rate": 0.5}, **fields), tmp_path)
    right = {("GRPO", "1"): (2, 4), ("GRPO", "2"): (1, 3), ("MyGO", "1"): (6, 8), ("MyGO", "2"): (7, 5)}
    runs = {cell: make_run(tmp_path, right[cell.place][cell.seed]) for cell in study.cells}
    *cells, row = tabulate(study, runs).rows
    assert (row.place, row.runs) == (("MyGO", "average"), {})
    average = row.metrics["em"].paired
    assert average is not None
    assert (average.n, average.paired_seeds, average.estimator) == (20, ("0", "1"), Estimator.AVERAGE)
    assert average.difference == pytest.approx((0.4 + 0.4) / 2)
    # World 1 is the case above: variance 0 of the seeds, 0.00444444 of the questions (9 degrees of freedom). In world 2
    # the seeds differ by 0.6 and 0.2: variance 0.04 of their mean (1 degree of freedom); the questions' differences are
    # 1 twice, 0.5 four times and 0 four times: 0.0155556 less the residual 0.00666667. Of the mean of both worlds the
    # parts are a quarter of the sums, 0.01 and 0.00333333 (1 and 16.2 degrees of freedom): three quarters of the
    # variance are of the seeds, so 0.703125 of the critical value is 12.7062 and the rest 2.1177.
    assert (average.low, average.high) == pytest.approx((0.4 - 1.10421, 0.4 + 1.10421), abs=1e-4)
    half = {cell: run for cell, run in runs.items() if (cell.place, cell.seed) != (("MyGO", "2"), 1)}
    assert len(tabulate(study, half).rows) == len(cells)  # no average over a level with one seed
    shown = FORMATS["markdown"](tabulate(study, runs))
    assert "| MyGO | average | – | 20 | – | – | – | +40.0 (" in shown
    assert "Rows `average` have the mean of the differences over the levels of world" in shown


@pytest.mark.parametrize(
    ("average", "message"), [("method", "name an axis without a level in baseline"), ("planet", "not planet")]
)
def test_average_over_an_axis_that_cannot_have_one_is_refused(tmp_path: Path, average: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_study(write_study(tmp_path, axes=AXES, baseline={"method": "GRPO"}, average=average), tmp_path)


def test_a_single_seed_has_the_interval_over_its_questions(tmp_path: Path) -> None:
    table = make_table(tmp_path, make_run(tmp_path, 10))
    row = table.rows[0].metrics["em"]
    assert (row.mean, row.low, row.high) == (1, 1, 1)
    assert row.estimator is Estimator.ONE_SEED
    shown = FORMATS["markdown"](table)
    assert "each seed" not in shown
    assert "| 100.0 to 100.0 (one seed) |" in shown
    assert "leaves out how much training varies from seed to seed" in shown


def test_a_difference_to_one_seed_is_marked(tmp_path: Path) -> None:
    fields = {"axes": AXES, "baseline": {"method": "GRPO"}, "metrics": ["em"]}
    study = load_study(write_study(tmp_path, settings={"rate": 0.5}, **fields), tmp_path)
    cells = [study.cells[place] for place in (0, 1, 2)]  # GRPO with both seeds, MyGO with seed 0
    table = tabulate(study, {cell: make_run(tmp_path, right) for cell, right in zip(cells, (2, 4, 6), strict=True)})
    paired = table.rows[1].metrics["em"].paired
    assert paired is not None
    assert (paired.difference, paired.estimator, paired.paired_seeds) == (0.4, Estimator.ONE_SEED, ("0",))
    assert "+40.0 (10.0 to 70.0, one seed)" in FORMATS["markdown"](table)


def test_costs_up_to_the_baselines_score_are_columns(tmp_path: Path) -> None:
    runs = []
    for right, seconds, middle in ((5, 6.0, 1), (6, 6.0, 1), (7, 2.0, 6), (8, 2.0, 5)):
        run = make_run(tmp_path, right)
        write_evaluation(run, "eval-start", 0)
        write_evaluation(run, "eval-u0001", middle)
        (run / "online").mkdir()
        lines = [update(n, 2, sampling_seconds=seconds) for n in (1, 2)]
        (run / "online/updates.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        runs.append(sealed(run))
    table = make_table(tmp_path, *runs)
    # GRPO's mean is 5.5 of ten after two updates of 10 s; MyGO's is 5.5 after one update of 6 s.
    shown = [list(csv.reader(io.StringIO(FORMATS["csv"](table))))[row][-7:] for row in (0, 1, 2, 3)]
    assert shown == [
        [
            "score_to_reach",
            "seconds",
            "rollouts",
            "trajectories",
            "tokens_sampled",
            "tokens_trained",
            "optimizer_steps",
        ],
        ["0.55", "20.0", "16", "16", "1600", "1400", "8"],
        ["0.55", "6.0", "8", "8", "800", "700", "4"],
        ["", "", "", "", "", "", ""],
    ]
    markdown = FORMATS["markdown"](table)
    assert "| time to the baseline's score | rollouts to the baseline's score |" in markdown
    assert "| 6.0 s | 8 | 8 | 800 | 700 | 4 |" in markdown
    assert "| – | – | – | – | – | – |\n" in markdown
    assert "Costs are means over the seeds up to the first evaluation whose mean EM" in markdown


def test_cost_of_a_cell_without_its_baseline_is_empty(tmp_path: Path) -> None:
    axes = {
        "method": {"GRPO": {}, "MyGO": {"settings": {"rate": 0.9}}},
        "size": {"1": {}, "2": {"settings": {"iterations": 2}}},
    }
    path = write_study(
        tmp_path, axes=axes, seeds=[0], settings={"rate": 0.5}, metrics=["em"], baseline={"method": "GRPO"},
        without=[{"method": "GRPO", "size": "2"}],
    )  # fmt: skip
    study = load_study(path, tmp_path)
    table = tabulate(study, {cell: make_run(tmp_path, right) for right, cell in enumerate(study.cells, start=5)})
    costs = {row.place: row.cost and row.cost.score for row in table.rows}
    assert costs == {("GRPO", "1"): 0.5, ("MyGO", "1"): 0.5, ("MyGO", "2"): None}


def test_places_with_equal_recipes_share_their_runs(tmp_path: Path) -> None:
    axes = {"rate": {"default": {}, "0.5": {"settings": {"rate": 0.5}}}}
    study = load_study(write_study(tmp_path, axes=axes, settings={"rate": 0.5}, metrics=["em"]), tmp_path)
    runs = {cell.run_dir: make_run(tmp_path, 5 + cell.seed) for cell in study.cells[:2]}
    table = tabulate(study, {cell: runs[cell.run_dir] for cell in study.cells})
    assert [row.metrics["em"].values for row in table.rows] == [(0.5, 0.6), (0.5, 0.6)]


def test_seeds_with_one_run_are_refused(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path, metrics=["em"]), tmp_path)
    run = make_run(tmp_path, 5)
    with pytest.raises(UserError, match="is named twice"):
        tabulate(study, dict.fromkeys(study.cells[:2], run))


def test_a_metric_that_no_run_has_is_noted(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path, metrics=["em", "f2"]), tmp_path)
    assert "No finished run has f2: check metrics" in FORMATS["markdown"](
        tabulate(study, {study.cells[0]: make_run(tmp_path, 5)})
    )
    assert "No finished run" not in FORMATS["markdown"](tabulate(study, {}))


def test_markdown_of_hostile_texts_opens_no_html_and_no_cell(table: StudyTable) -> None:
    hostile = "<img src=x onerror=a> a|b &lt; \\<b> 1 < 2"
    row = table.rows[0].model_copy(update={"place": (hostile,)})
    shown = FORMATS["markdown"](table.model_copy(update={"title": f"T {hostile}\n# x", "rows": (row,)}))
    escaped = r"\<img src=x onerror=a> a\|b \&lt; \\\<b> 1 < 2"
    assert shown.startswith(f"# T {escaped} # x\n")
    assert f"| {escaped} |" in shown


def test_every_format_carries_the_warning_of_altered_files(table: StudyTable) -> None:
    altered = table.model_copy(update={"altered": ("run/scores.json: was altered",)})
    for name, write in FORMATS.items():
        assert "Warning: run/scores.json: was altered" in write(altered), name


def test_every_format_shows_the_same_numbers(table: StudyTable) -> None:
    shown = {name: format(table) for name, format in FORMATS.items()}
    mygo = ["2", "10", "70.0", "0.0 to 100.0", "60.0, 80.0", "+40.0 (24.9 to 55.1), p < 0.001", "77.6"]
    assert "| GRPO | 2 | 10 | 30.0 | 0.0 to 100.0 | 20.0, 40.0 | – | – |" in shown["markdown"]
    assert rf"| MyGO & \<co> | {' | '.join(mygo)} |" in shown["markdown"]
    assert "| later | – | – | – | – | – | – | – |" in shown["markdown"]
    assert r"MyGO \& <co> & " + " & ".join(mygo).replace("−", "$-$") + r" \\" in shown["latex"]
    assert '<th scope="row">MyGO &amp; &lt;co&gt;</th><td class="n">2</td><td class="n">10</td>' in shown["html"]
    rows = list(csv.DictReader(io.StringIO(shown["csv"])))
    assert [row["method"] for row in rows] == ["GRPO", "MyGO & <co>", "later"]
    assert (float(rows[1]["mean"]), float(rows[1]["published"]), rows[2]["mean"]) == (pytest.approx(0.7), 77.6, "")


def test_published_column_is_left_out_where_no_value_was_published(table: StudyTable) -> None:
    rows = [
        row.model_copy(update={"metrics": {"em": row.metrics["em"].model_copy(update={"published": None})}})
        for row in table.rows
    ]
    unpublished = FORMATS["markdown"](table.model_copy(update={"rows": tuple(rows)}))
    assert ("published" in FORMATS["markdown"](table), "published" in unpublished) == (True, False)


def test_cells_of_other_questions_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not evaluated on the same questions"):
        make_table(tmp_path, make_run(tmp_path, 2), make_run(tmp_path, 3, questions=9))
