"""Lineage of a run in MLflow: models and datasets read and written, scores on models, versions, the note."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from platform_sdk.tracking import finish_run, start_run, step_run
from platform_sdk.tracking.delivery import deliver
from tests.chaos.outcome import differences
from tests.chaos.outcome import mlflow as content

RECIPE = {"pipeline": "mygo", "name": "world", "parameters": {"model": "hopforge:world-base"}}
BASE, WARM, FINAL = "b" * 64, "c" * 64, "d" * 64
TRAIN, EVAL, SELECTED = "1" * 64, "2" * 64, "3" * 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of run directories: its store is set up once for all tests here."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    return Store(folder, write_run(folder / "run"))


def write_scores(run_dir: Path, phase: str, em: float) -> Path:
    metrics = {"turns": {"value": 2.5}, "em": {"value": em, "low": em - 0.1, "high": em + 0.1}}
    path = run_dir / phase / "scores.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"phase": phase, "n": 50, "shown": ["em", "absent"], "metrics": metrics}))
    return path


def write_run(run_dir: Path, pipeline: str = "mygo") -> str:
    """Two trainings from a base model, an evaluation before and one after; return the run's id."""
    run_dir.mkdir(exist_ok=True)
    start_run(run_dir, {**RECIPE, "pipeline": pipeline}, follow=False, description="Why it was run.")
    with step_run(run_dir, "corpus") as step:
        for name, digest, use in (("train", TRAIN, "training"), ("eval", EVAL, "evaluation")):
            step.log_dataset(name, digest=digest, source="world (run/corpus)", context=use, rows=50)
    with step_run(run_dir, "policy") as step:
        step.log_base_model("hopforge:world-base", BASE)
    with step_run(run_dir, "eval-start") as step:
        step.log_inputs(model=BASE, evaluation={"questions": EVAL})
        step.log_scores(write_scores(run_dir, "eval-start", 0.2), model=BASE, questions=EVAL)
    for iteration, phase, parent, weights in ((0, "warmup", BASE, WARM), (2, "iteration-01", WARM, FINAL)):
        (run_dir / phase / "model").mkdir(parents=True, exist_ok=True)
        (run_dir / phase / "model" / "model.safetensors").write_text(weights)
        with step_run(run_dir, f"train-{phase}") as step:
            step.log_inputs(model=parent, training={f"{phase}/selected.jsonl": SELECTED, "train": TRAIN})
            step.log_model(run_dir / phase / "model", digest=weights, iteration=iteration, tags={"parent": parent})
            step.record_digests(weights=weights)
            if phase != "warmup":
                step.log_score_point(write_scores(run_dir, "eval-between", 0.3), iteration=1)
    with step_run(run_dir, "eval-final") as step:
        step.log_inputs(model=FINAL, evaluation={"questions": EVAL})
        step.log_scores(write_scores(run_dir, "eval-final", 0.5), iteration=2, model=FINAL, questions=EVAL)
    with step_run(run_dir, "report") as step:
        step.log_note("# What it is\n\nAnd its scores.")
    return finish_run(run_dir, "FINISHED")


class Store:
    """Contents of an MLflow run."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
        self.parent = self.client.get_run(run_id)
        experiment = self.parent.info.experiment_id
        self.experiment = self.client.get_experiment(experiment)
        nested = self.client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{run_id}'")
        # A search leaves the models out that a run read.
        self.steps: dict[str, Run] = {run.info.run_name: self.client.get_run(run.info.run_id) for run in nested}
        logged = self.client.search_logged_models([experiment], f"source_run_id = '{run_id}'")
        self.models = {model.tags["weights"]: model for model in logged}
        self.weights = {model.model_id: weights for weights, model in self.models.items()}

    def read(self, run: Run) -> tuple[set[str], set[str]]:
        """Return the weights and the datasets that a run read."""
        data = {f"{one.dataset.name} {one.dataset.digest[0]}" for one in run.inputs.dataset_inputs}
        return {self.weights[one.model_id] for one in run.inputs.model_inputs}, data

    def written(self, run: Run) -> set[tuple[str, int]]:
        return {(self.weights[one.model_id], one.step) for one in run.outputs.model_outputs}


def test_every_run_names_the_models_and_datasets_that_it_read_and_wrote(folder: Path, store: Store) -> None:
    assert store.read(store.parent) == ({BASE}, {"train 1", "eval 2"})
    assert store.written(store.parent) == {(WARM, 0), (FINAL, 2)}
    assert {name: (*store.read(run), store.written(run)) for name, run in store.steps.items()} == {
        "corpus": (set(), {"train 1", "eval 2"}, set()),
        "policy": ({BASE}, set(), set()),
        "eval-start": ({BASE}, {"eval 2"}, set()),
        "train-warmup": ({BASE}, {"warmup/selected.jsonl 3", "train 1"}, {(WARM, 0)}),
        "train-iteration-01": ({WARM}, {"iteration-01/selected.jsonl 3", "train 1"}, {(FINAL, 2)}),
        "eval-final": ({FINAL}, {"eval 2"}, set()),
        "report": (set(), set(), set()),
    }
    selected = store.steps["train-warmup"].inputs.dataset_inputs
    sources = {one.dataset.name: json.loads(one.dataset.source)["uri"] for one in selected}
    assert sources["warmup/selected.jsonl"] == str(folder / "run" / "warmup" / "selected.jsonl")


def test_scores_are_curves_of_the_run_and_metrics_of_the_evaluated_models(store: Store) -> None:
    curve = store.client.get_metric_history(store.parent.info.run_id, "Scores/em")
    assert [(point.step, point.value) for point in curve] == [(0, 0.2), (1, 0.3), (2, 0.5)]
    assert "Scores/turns" not in store.parent.data.metrics  # the method does not show it
    scores = {
        weights: [(one.key, one.value, one.dataset_name, one.dataset_digest) for one in model.metrics or []]
        for weights, model in store.models.items()
    }
    assert scores == {
        BASE: [("Scores/em", 0.2, "eval", EVAL[:36])],
        WARM: [],
        FINAL: [("Scores/em", 0.5, "eval", EVAL[:36])],
    }
    assert [store.models[weights].name for weights in (BASE, FINAL)] == ["hopforge-world-base", "world-iteration-01"]
    assert store.client.list_logged_model_artifacts(store.models[BASE].model_id) == []


def test_versions_are_described_and_the_runs_alias_leads_to_its_last_model(folder: Path, store: Store) -> None:
    version = store.client.get_model_version_by_alias("world", "run")
    assert version.tags["weights"] == FINAL
    assert version.tags["em"] == "0.500"
    assert version.description == (
        "iteration-01 of the run run: the policy trained there; recipe `world`, pipeline `mygo`, base model "
        "`hopforge:world-base`.\n\nScores of eval-final on 50 questions, with 95 % intervals:\n\n"
        "- em: 0.500 (0.400 to 0.600)"
    )
    # A delivery from the start passes the first model again, which is not the run's last.
    state = folder / "run" / "tracking" / "mlflow.json"
    offsets = json.loads(state.read_text())["offsets"] | {"steps/train-warmup": 0}
    state.write_text(json.dumps(json.loads(state.read_text()) | {"offsets": offsets, "sha256": None}))
    deliver(folder / "run")
    assert store.client.get_model_version_by_alias("world", "run").tags["weights"] == FINAL


def test_alias_that_mlflow_reserves_gets_a_prefix(folder: Path) -> None:
    store = Store(folder, write_run(folder / "v2"))
    assert store.client.get_model_version_by_alias("world", "run-v2").tags["weights"] == FINAL


def test_the_run_is_described_and_its_tags_have_names_that_the_page_shows_whole(store: Store) -> None:
    tags = store.parent.data.tags
    assert tags["mlflow.note.content"] == "# What it is\n\nAnd its scores."
    assert tags["weights"] == FINAL
    shown = [name for name in tags if not name.startswith(("mlflow.", "hopforge."))]
    assert {"weights", "train", "eval", "recipe", "manifest_head"} <= set(shown)
    assert max(map(len, shown)) <= 15
    assert store.experiment.tags["mlflow.experimentKind"] == "custom_model_development"


def test_another_view_that_somebody_chose_is_kept(folder: Path) -> None:
    store = Store(folder, write_run(folder / "one", "toy"))
    store.client.set_experiment_tag(store.experiment.experiment_id, "mlflow.experimentKind", "genai_development")
    assert Store(folder, write_run(folder / "other", "toy")).experiment.tags == {
        "mlflow.experimentKind": "genai_development"
    }


def test_repeated_delivery_is_recorded_once_in_mlflow(folder: Path) -> None:
    run_id = write_run(folder / "twice")
    once: dict[str, Any] = content(folder)
    assert once["MLflow scores of models"]
    state = folder / "twice" / "tracking" / "mlflow.json"
    kept = json.loads(state.read_text()) | {"sha256": None}
    for forgotten in ({"offsets": {}}, {"offsets": {}, "run_id": None, "steps": {}}):
        state.write_text(json.dumps(kept | forgotten))
        deliver(folder / "twice")
        assert list(differences(once, content(folder))) == []
    assert write_run(folder / "twice") == run_id
    assert list(differences(once, content(folder))) == []
