"""Small finished runs for the tests of lineage: a real dataset step, and the records of the later steps."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from platform_sdk.record_files import digest_file, read_jsonl, write_jsonl
from platform_sdk.records import Evidence, Question, Rollout
from platform_sdk.steps import corpus
from platform_sdk.tracking import start_run, step_run
from tests.tracking.rollouts import environment, rollout, trajectory

BASE = hashlib.sha256(b"base").hexdigest()


def write_dataset(folder: Path) -> Path:
    """Write a dataset in hopforge's own format: questions for training and evaluation, and passages."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = {
        "train": [{"id": f"t{n}", "question": f"Who founded town {n}?", "answers": [f"A{n}"]} for n in range(4)],
        "eval": [{"id": f"e{n}", "question": f"Who runs city {n}?", "answers": [f"B{n}"]} for n in range(2)],
    }
    for name, questions in lines.items():
        _write(folder / f"{name}.jsonl", [{**question, "gold": ["P1"]} for question in questions])
    passages = [{"id": f"p{n}", "title": f"P{n}", "text": f"Text {n}."} for n in range(3)]
    _write(folder / "passages.jsonl", [{"record": "passage", "schema": 1}, *passages])
    return folder


def _write(path: Path, lines: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def digest(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def write_run(run_dir: Path, dataset: Path, *, base: str = BASE, base_file: Path | None = None) -> str:
    """Write a run's steps from the dataset to the scores; return the digest of its model.

    The contents of the later steps are digests of the contents of their inputs. ``base_file`` are the base's weights.
    """
    recipe = {
        "pipeline": "mygo",
        "name": "small",
        "parameters": {"model": "models/base", "dataset": {"format": "jsonl"}},
    }
    run_dir.mkdir(parents=True)
    (run_dir / "recipe.json").write_text(json.dumps(recipe))
    start_run(run_dir, recipe, follow=False)
    spec = {"format": "jsonl", "train": "train.jsonl", "eval": "eval.jsonl", "corpus": "passages.jsonl"}
    made = corpus.run(corpus.Inputs(run_dir=run_dir, dataset=spec, data_dir=str(dataset))).outputs
    with step_run(run_dir, "policy") as step:
        step.record_digests(base_weights=base)
        if base_file:
            step.seal(base_file)
    index = digest("index", made.corpus_digest)
    with step_run(run_dir, "index") as step:
        step.log_inputs(retrieval={"passages": made.corpus_digest})
        step.record_digests(searched=made.corpus_digest, index=index)
    read = {"training": {"train": made.train_digest}, "retrieval": {"index": made.corpus_digest}}
    sampled = _write_rollouts(run_dir / "warmup/rollouts.jsonl", run_dir / "corpus/questions.train.jsonl", base, index)
    with step_run(run_dir, "sample-warmup") as step:
        step.log_inputs(model=base, **read)
        step.record_digests(policy=base, searched=made.corpus_digest, index=index, rollouts=sampled)
        step.seal(run_dir / "warmup/rollouts.jsonl")
    rollouts = list(read_jsonl(run_dir / "warmup/rollouts.jsonl", Rollout))
    write_jsonl(run_dir / "warmup/selected.jsonl", Rollout, rollouts[:2])
    selected = digest_file(run_dir / "warmup/selected.jsonl", Rollout)
    with step_run(run_dir, "score-warmup") as step:
        step.log_inputs(training={"warmup/rollouts.jsonl": sampled})
        step.record_digests(rollouts=sampled, selected=selected)
        step.seal(run_dir / "warmup/selected.jsonl")
    weights = digest("model", base, selected)
    with step_run(run_dir, "train-warmup") as step:
        (run_dir / "warmup/model").mkdir()
        (run_dir / "warmup/model/model.safetensors").write_text(weights)
        step.log_inputs(model=base, training={"warmup/selected.jsonl": selected})
        step.record_digests(parent_weights=base, selected=selected, weights=weights)
        step.seal(run_dir / "warmup/model")
    folder = run_dir / "eval-final"
    _write_rollouts(folder / "rollouts.jsonl", run_dir / "corpus/questions.eval.jsonl", weights, index)
    with step_run(run_dir, "eval-final") as step:
        metrics = {"em": {"value": 0.5, "low": 0.25, "high": 0.75, "n": 2}}
        content = {
            "phase": "eval-final",
            "n": 2,
            "metrics": metrics,
            "inputs": digest(weights, made.eval_digest, index),
        }
        (folder / "scores.json").write_text(json.dumps(content))
        step.log_inputs(model=weights, evaluation={"eval": made.eval_digest}, retrieval={"index": made.corpus_digest})
        step.seal(folder)
    return weights


def _write_rollouts(path: Path, questions: Path, weights: str, index: str) -> str:
    """Write a rollout of each question that retrieved ``p1`` for the first and ``p2`` for the others."""
    rollouts = []
    for number, question in enumerate(read_jsonl(questions, Question)):
        found = Evidence(kind="passage", id="p1" if number == 0 else "p2", text="Text.", score=1.0)
        main = trajectory("agent", "agent", [environment("Text.", found)])
        fields = {"question": question, "main": main, "others": (), "weights": weights, "corpus": index}
        rollouts.append(rollout(number).model_copy(update=fields))
    write_jsonl(path, Rollout, rollouts)
    return digest_file(path, Rollout)
