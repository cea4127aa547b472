"""Every search of ``docs/mlflow.md`` finds the run that its question is about, and no other run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.data.licences import Terms
from platform_sdk.tracking import finish_run, runs, start_run, step_run

PAGE = Path(__file__).parents[2] / "docs/mlflow.md"
ROW = re.compile(r"^\| (?P<question>[^|]+) \| (``(?P<long>.+?)``|`(?P<short>[^`]+)`)(,|\s\|)")
WANTED, OTHER = "wanted", "other"
QUESTIONS = {WANTED: "1" * 64, OTHER: "2" * 64}
WEIGHTS = {WANTED: "a" * 64, OTHER: "b" * 64}


def searches() -> dict[str, str]:
    """Return the searches of the page by their questions."""
    matches = filter(None, map(ROW.match, PAGE.read_text(encoding="utf-8").splitlines()))
    return {match["question"]: match["long"] or match["short"] for match in matches}


def write_run(run_dir: Path, *, dataset: str, licence: str, place: dict[str, str], gpu_hours: float) -> None:
    name = run_dir.name
    recipe = {"pipeline": "mygo", "name": name, "parameters": {"dataset": {"format": dataset}, "model": "models/base"}}
    run_dir.mkdir()
    (run_dir / "recipe.json").write_text(json.dumps(recipe))
    start_run(run_dir, recipe, follow=False, place=place)
    with step_run(run_dir, "corpus") as step:
        for split, context in (("train", "training"), ("eval", "evaluation")):
            step.log_dataset(split, digest=QUESTIONS[name], source=f"{split}.jsonl", context=context, rows=2)
        step.record_licences("dataset_licence", [_terms(f"dataset {dataset}", licence)])
    with step_run(run_dir, "policy") as step:
        step.record_licences("model_licence", [_terms("model models/base", licence)])
    with step_run(run_dir, "train-warmup") as step:
        model = run_dir / "warmup/model"
        model.mkdir(parents=True)
        (model / "model.safetensors").write_text(name)
        step.seal(model)
        step.record_digests(weights=WEIGHTS[name])
        step.log_model(model, digest=WEIGHTS[name], iteration=1, tags={})
        step.record_gpu_hours("job of the step", gpu_hours)
    finish_run(run_dir, "FINISHED")


def _terms(thing: str, licence: str) -> Terms:
    return Terms(thing=thing, revision="unknown", licence=licence, source="a statement")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mlflow.MlflowClient]:
    folder = tmp_path_factory.mktemp("searches")
    with pytest.MonkeyPatch.context() as patch:
        real = runs.provenance
        for name, dataset, licence, place, gpu_hours in (
            (WANTED, "hotpotqa", "unknown", {"team": "search", "pipelines_run": "ID", "submitted_by": "ann"}, 100.5),
            (OTHER, "musique", "MIT", {"team": "maths", "pipelines_run": "another", "submitted_by": "bob"}, 99.5),
        ):
            dirty = name == WANTED
            patch.setattr(runs, "provenance", lambda *a, dirty=dirty: real(*a).model_copy(update={"dirty": dirty}))
            write_run(folder / name, dataset=dataset, licence=licence, place=place, gpu_hours=gpu_hours)
        command = ["approve", f"{WANTED}@{WANTED}", "--note", "Read.", "--name", "Cleo", "--folder", str(folder)]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        yield mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")


@pytest.mark.parametrize("question", searches())
def test_search_of_the_page_finds_the_run_of_its_question_only(store: mlflow.MlflowClient, question: str) -> None:
    query = searches()[question]
    query = query.replace("FIRST 36 DIGITS", QUESTIONS[WANTED][:36]).replace("'DIGEST'", f"'{WEIGHTS[WANTED]}'")
    experiments = [experiment.experiment_id for experiment in store.search_experiments()]
    found = store.search_runs(experiments, query)
    assert [run.info.run_name for run in found] == [WANTED]
