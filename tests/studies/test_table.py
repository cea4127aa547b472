"""A study's table: numbers worked out by hand, in every format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from platform_sdk.errors import UserError
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Question
from platform_sdk.studies.formats import FORMATS
from platform_sdk.studies.study import load_study
from platform_sdk.studies.table import StudyTable, tabulate
from tests.evaluation.online_runs import question, write_evaluation
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
    # Means of 0.2 and 0.4: deviation 0.141421, of the mean 0.1; 97.5 % quantile of one degree of freedom 12.7062. A
    # mean of shares is not beyond 0 and 1, as 0.3 ± 1.27062 would be.
    assert (grpo.mean, grpo.low, grpo.high) == (pytest.approx(0.3), 0, 1)
    assert grpo.paired is None
    assert mygo.mean == pytest.approx(0.7)
    # Of the ten questions' differences four are 0, four 0.5 and two 1: mean 0.4, variance 1.4 / 9, of the mean
    # 0.0155556 with 9 degrees of freedom. Each group's variance over seeds is 0.02, of its mean 0.01 with 1. Their sum
    # 0.0355556 has 0.0355556² / (0.0155556² / 9 + 2 · 0.01²) = 5.572 degrees of freedom, 97.5 % quantile 2.4932, root
    # 0.188562.
    assert mygo.paired is not None
    assert mygo.paired.difference == pytest.approx(0.4)
    assert (mygo.paired.low, mygo.paired.high) == pytest.approx((0.4 - 0.470124, 0.4 + 0.470124), abs=1e-5)
    assert mygo.paired.p_value == pytest.approx(0.081679, abs=1e-5)
    assert (later.mean, later.paired) == (None, None)
    assert table.missing == ("later, seed 0", "later, seed 1")


def test_seeds_near_each_other_have_an_interval_within_the_bounds(tmp_path: Path) -> None:
    row = make_table(tmp_path, make_run(tmp_path, 50, 100), make_run(tmp_path, 52, 100)).rows[0].metrics["em"]
    # Deviation 0.0141421, of the mean 0.01.
    assert (row.mean, row.low, row.high) == pytest.approx((0.51, 0.51 - 0.127062, 0.51 + 0.127062), abs=1e-5)


def test_a_single_seed_has_the_interval_over_its_questions(tmp_path: Path) -> None:
    table = make_table(tmp_path, make_run(tmp_path, 10))
    row = table.rows[0].metrics["em"]
    assert (row.mean, row.low, row.high) == (1, 1, 1)
    assert "each seed" not in FORMATS["markdown"](table)


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
    mygo = ["2", "10", "70.0", "0.0 to 100.0", "60.0, 80.0", "+40.0 (−7.0 to 87.0), p = 0.082", "77.6"]
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
