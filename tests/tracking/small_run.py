"""A small finished run by the tracking functions alone: every kind of event, in a second and without a model."""

from __future__ import annotations

import json
from pathlib import Path

from platform_sdk.data.terms import Terms
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Rollout
from platform_sdk.tracking import finish_run, start_run, step_run
from platform_sdk.tracking.assessments import RewardSources
from tests.tracking.rollouts import rollout

RUN = "small"
"""Name of the run's directory in the tests."""
RECIPE = {"pipeline": "mygo", "name": "small", "parameters": {"model": "hopforge:world-base", "seed": 3}}
SCORES, ROLLOUTS = "eval-final/scores.json", "eval-start/rollouts.jsonl"
BASE, TRAINED = "b" * 64, "d" * 64
TRAIN, EVAL = "1" * 64, "2" * 64


def write_small_run(run_dir: Path) -> str:
    """Write a finished run and deliver it to MLflow; return its id there."""
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "recipe.json").write_text(json.dumps(RECIPE))
    start_run(run_dir, RECIPE, follow=False, description="Why it was run.")
    with step_run(run_dir, "corpus") as step:
        _write(run_dir / "corpus/passages.jsonl", '{"id": "p1"}\n')
        _write(run_dir / "corpus/questions.eval.jsonl", '{"id": "q1"}\n')
        step.seal(run_dir / "corpus")
        for name, digest, use in (("train", TRAIN, "training"), ("eval", EVAL, "evaluation")):
            step.log_dataset(name, digest=digest, source=f"world ({run_dir.name}/corpus)", context=use, rows=50)
        step.record_licences(
            "dataset_licence",
            [Terms(thing="dataset own", revision="unknown", licence="unknown", source="no statement")],
        )
    with step_run(run_dir, "policy") as step:
        step.log_params({"model": "hopforge:world-base"})
        step.record_digests(base_weights=BASE)
        step.log_base_model("hopforge:world-base", BASE)
    _evaluate(run_dir, "eval-start", 0.25, BASE, iteration=0)
    with step_run(run_dir, "train-warmup") as step:
        model = run_dir / "warmup/model"
        _write(model / "model.safetensors", "weights")
        _write(model / "config.json", "{}")
        step.log_inputs(model=BASE, training={"train": TRAIN})
        step.log_curve([{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}], axis="step", phase="warmup")
        step.seal(model)
        step.log_model(model, digest=TRAINED, iteration=1, tags={"parent_weights": BASE})
    _evaluate(run_dir, "eval-final", 0.5, TRAINED, iteration=1)
    with step_run(run_dir, "report") as step:
        _write(run_dir / "report.html", "<p>em 25.0 to 50.0</p>")
        step.log_note("**em 25.0 → 50.0**")
    return finish_run(run_dir, "FINISHED")


def _evaluate(run_dir: Path, phase: str, em: float, model: str, *, iteration: int) -> None:
    folder = run_dir / phase
    with step_run(run_dir, phase) as step:
        step.log_inputs(model=model, evaluation={"eval": EVAL})
        metrics = {"em": {"value": em, "low": em - 0.125, "high": em + 0.125}}
        _write(folder / "scores.json", json.dumps({"phase": phase, "n": 50, "metrics": metrics}))
        write_jsonl(folder / "rollouts.jsonl", Rollout, [rollout(number) for number in range(2)])
        step.seal(folder)
        step.log_scores(folder / "scores.json", iteration=iteration, model=model, questions=EVAL)
        step.log_rollouts(folder / "rollouts.jsonl", sources=RewardSources(method="mygo", judges={"f1": "a-judge"}))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
