"""``hopforge metrics`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from platform_sdk.cli import app
from platform_sdk.config.errors import UserError
from platform_sdk.record_files import RecordError

GOLD = [{"_id": i, "answer": "big cat", "supporting_facts": [["T", 0]]} for i in ("a", "[b]")]
PREDICTIONS = {"answer": {"a": "the cat"}, "sp": {"a": [["T", 0]], "[b]": []}}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "gold.json").write_text(json.dumps(GOLD))
    (tmp_path / "predictions.json").write_text(json.dumps(PREDICTIONS))
    return ["--gold", str(tmp_path / "gold.json"), "--predictions", str(tmp_path / "predictions.json")]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["metrics", *arguments])


def test_json_is_one_object_of_the_official_names(files: list[str]) -> None:
    result = invoke("hotpotqa", *files, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert list(found) == [prefix + name for prefix in ("", "sp_", "joint_") for name in ("em", "f1", "prec", "recall")]
    assert found["f1"] == pytest.approx(1 / 3)
    assert found["sp_em"] == found["joint_prec"] == 0.5
    assert "1 of 2 questions have no predicted answer" in result.stderr


def test_json_output_holds_questions_and_intervals(files: list[str]) -> None:
    found = json.loads(invoke("hotpotqa", *files, "--json", "--per-question", "--intervals").stdout)
    assert found["n"] == 2
    assert found["per_question"]["a"]["f1"] == pytest.approx(2 / 3)
    low, high = found["intervals"]["sp_em"]
    assert (low, high) == (0.0, 1.0)
    again = json.loads(invoke("hotpotqa", *files, "--json", "--intervals").stdout)
    assert again["intervals"] == found["intervals"]


def test_metrics_table_shows_scores_intervals_and_questions(files: list[str]) -> None:
    result = invoke("hotpotqa", *files, "--per-question", "--intervals")
    assert result.exit_code == 0
    for text in ("2 questions", "joint_recall", "33.33", "0.00 to 66.67", "[b]"):
        assert text in result.stdout


def test_metrics_command_errors_name_file_and_problem(files: list[str], tmp_path: Path) -> None:
    assert isinstance(invoke("nq", *files, "--names", "x").exception, UserError)
    (tmp_path / "predictions.json").write_text("{")
    error = invoke("hotpotqa", *files).exception
    assert isinstance(error, RecordError)
    assert "predictions.json: not valid JSON" in str(error)
    assert invoke("squad", *files).exit_code == 2


def test_predictions_without_a_question_are_counted(files: list[str], tmp_path: Path) -> None:
    more = {"answer": {"a": "cat", "x": "1", "y": "2"}, "sp": {"y": [], "z": []}}
    (tmp_path / "predictions.json").write_text(json.dumps(more))
    result = invoke("hotpotqa", *files, "--json")
    assert f"3 predictions are ignored: {tmp_path}/gold.json has no question for them" in result.stderr
    assert "1 of 2 questions have no predicted answer" in result.stderr
    assert len(json.loads(result.stdout)) == 12


def test_ids_that_no_terminal_shows_are_printed_escaped(files: list[str], tmp_path: Path) -> None:
    gold = [{"_id": id_, "answer": "a", "supporting_facts": []} for id_ in ("\ud800", "\x1b[2J")]
    (tmp_path / "gold.json").write_text(json.dumps(gold))
    result = invoke("hotpotqa", *files, "--per-question")
    assert result.exit_code == 0
    assert "\x1b[2J" not in result.stdout
