"""A dataset format is one file: ``tests/extensions/squad.py``, named by a recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.data.dataset import prepare
from platform_sdk.evaluation.predictions import write_predictions
from platform_sdk.record_files import RecordError, read_jsonl
from platform_sdk.records import Passage, Question, Rollout, Trajectory

FORMAT = "tests.extensions.squad"
SHIPPED = Path(__file__).parents[2] / "pipelines/mygo/hotpotqa-smollm2.yaml"
RECORDS = [
    {"id": "1", "title": "Dawn", "context": "Dawn is by Ann Lee.", "question": "Whose film is Dawn?",
     "answers": [{"text": "Ann Lee", "answer_start": 11}, {"text": "Ann Lee", "answer_start": 11}]},
    {"id": "2", "title": "Ann Lee", "context": "She was born in Oslo.", "question": "Where was Ann Lee born?",
     "answers": [{"text": "Oslo", "answer_start": 16}]},
]  # fmt: skip


def spec_of(folder: Path, records: list[dict[str, object]]) -> DatasetSpec:
    file = folder / "squad.json"
    file.write_text(json.dumps({"data": records}))
    return DatasetSpec(format=FORMAT, eval=(str(file),))


def test_questions_passages_and_predictions_of_an_own_format(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, RECORDS)
    prepared = prepare(spec, None, tmp_path / "run")
    assert (prepared.counts["eval"], prepared.counts["passages"]) == (2, 2)
    dawn, born = read_jsonl(tmp_path / "run/corpus/questions.eval.jsonl", Question)
    assert (dawn.dataset, dawn.answers, dawn.gold_passages) == (FORMAT, ("Ann Lee",), ("Dawn",))
    assert born.context == (Passage(id="2/0", title="Ann Lee", text="She was born in Oslo."),)
    spoken = Trajectory(role="agent", id="main", token_ids=(), agent_mask=(), logprobs=(), turns=(), answer="Oslo")
    rollout = Rollout(question=born, attempt=0, seed=0, main=spoken, outcome="answered", weights="w", corpus="c")
    [file] = write_predictions(tmp_path, [rollout])
    assert (file.name, json.loads(file.read_text())) == (f"predictions-{FORMAT}.json", {"2": "Oslo"})


def test_errors_name_the_record_of_an_own_format(tmp_path: Path) -> None:
    for change, said in (
        ({"answers": []}, "record 2: answers: is empty; questions that cannot be answered"),
        ({"title": 3}, "record 2: title: Expected `str`, got `int`"),
    ):
        with pytest.raises(RecordError, match="squad.json: ") as caught:
            prepare(spec_of(tmp_path, [RECORDS[0], RECORDS[1] | change]), None, tmp_path / "run")
        assert said in str(caught.value)
    (tmp_path / "squad.json").write_text("[]")
    with pytest.raises(
        RecordError, match="not a tests.extensions.squad file: an object with a list of data is expected"
    ):
        prepare(DatasetSpec(format=FORMAT, eval=(str(tmp_path / "squad.json"),)), None, tmp_path / "run")


def test_recipe_names_the_module_of_an_own_format(tmp_path: Path) -> None:
    for format, said in (
        (FORMAT, None),
        ("hotpot", "there is no format hotpot; did you mean hotpotqa?"),
        (
            "tests.data.squat",
            "tests.data.squat:FORMAT cannot be found: no source of tests.data.squat on the Python path",
        ),
        ("tests.data.conftest", "tests.data.conftest:FORMAT cannot be found"),
    ):
        own = SHIPPED.read_text().replace("format: hotpotqa", f"format: {format}")
        (tmp_path / "own.yaml").write_text(own)
        done = CliRunner().invoke(app, ["validate", str(tmp_path / "own.yaml")])
        if said is None:
            assert done.exit_code == 0, done.output
        else:
            assert said in str(done.exception)
            assert "own.yaml:10: parameters.dataset.format" in str(done.exception)
