"""The component ``train`` in a pipeline, on two processes: as on one, and whatever kills it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from platform_sdk.config.training import TrainSpec
from platform_sdk.kubeflow.local import StepFailed
from platform_sdk.records import Rollout, write_jsonl
from platform_sdk.tracking.journal import read, step_file
from platform_sdk.training.examples import Example
from platform_sdk.training.run import TrainResult
from platform_sdk.training.steps import train_step
from tests.kubeflow.test_local import alive, run, wait_for
from tests.training.test_steps import as_rollout

ROOT = Path(__file__).parents[2]
SPEC = TrainSpec(
    learning_rate=1e-2, minimum_learning_rate=1e-3, batch_size=8, micro_batch_tokens=30, epochs=4, device="cpu",
    checkpoint_steps=1,
)  # fmt: skip
PIPELINE = """\
name: training
description: One training
method: none
parameters:
  model: {type: string, description: The policy to start from}
  training: {type: struct, description: Settings, schema: "platform_sdk.config.training:TrainSpec"}
steps:
  - id: train
    component: train
    inputs:
      run_dir: ${run.dir}
      phase: warmup
      iteration: 0
      model_path: ${parameters.model}
      model_digest: its digest
      selected_digest: their digest
      training: ${parameters.training}
      seed: 3
"""
BEGIN = "import sys; from pathlib import Path; from tests.kubeflow.test_local import run; run(*map(Path, sys.argv[1:]))"


@pytest.fixture
def recipe(tmp_path: Path, tiny_model: Path) -> Path:
    folder = tmp_path / "pipelines" / "training"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    training = {**SPEC.model_dump(mode="json"), "processes": 2}
    values = {"pipeline": "training", "name": "small", "parameters": {"model": str(tiny_model), "training": training}}
    (folder / "small.yaml").write_text(json.dumps(values))  # which is YAML too
    return folder / "small.yaml"


def begun(run_dir: Path, dialogues: list[Example]) -> Path:
    """A run directory whose phase has its selected rollouts."""
    pairs = zip(dialogues[::2], dialogues[1::2], strict=True)
    (run_dir / "warmup").mkdir(parents=True)
    rollouts = [as_rollout(number, *pair) for number, pair in enumerate(pairs)]
    write_jsonl(run_dir / "warmup" / "selected.jsonl", Rollout, rollouts)
    return run_dir


def workers(run_dir: Path) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "platform_sdk.training" in words and str(run_dir / "warmup" / "job.json") in words:
            yield int(path.parent.name)


def result(run_dir: Path) -> TrainResult:
    return TrainResult.model_validate_json((run_dir / "warmup" / "train.json").read_text())


def test_two_processes_train_as_one_and_a_killed_run_as_an_undisturbed_one(
    recipe: Path, tiny_model: Path, dialogues: list[Example], tmp_path: Path
) -> None:
    whole = begun(tmp_path / "whole", dialogues)
    assert run(recipe, whole).events == ["+train", "-train"]
    alone = begun(tmp_path / "alone", dialogues)
    train_step(alone, "warmup", str(tiny_model), alone / "warmup" / "selected.jsonl", SPEC, 3)
    losses = [point.loss for point in result(whole).curve]
    assert len(losses) == 4 * 3
    assert losses == pytest.approx([point.loss for point in result(alone).curve], rel=2e-4)
    assert not (whole / "warmup" / "processes").exists()

    killed = begun(tmp_path / "killed", dialogues)
    process = subprocess.Popen([sys.executable, "-c", BEGIN, str(recipe), str(killed)], cwd=ROOT)
    wait_for(lambda: any(killed.glob("warmup/checkpoints/*/checkpoint-[2-9]")), 120)
    at_work = list(workers(killed))
    assert len(at_work) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(map(alive, at_work)))
    assert not list(workers(killed))
    assert not (killed / "warmup" / "train.json").exists()
    run(recipe, killed)
    assert result(killed).weights == result(whole).weights
    assert [point.loss for point in result(killed).curve] == losses

    # Each step's loss is told once, whatever was repeated, and by nobody but the component.
    for run_dir in (whole, killed):
        said = [
            event for event in read(step_file(run_dir, "train-warmup"))[0] if "warmup/loss" in event.get("metrics", {})
        ]
        assert [(event["iteration"], event["metrics"]["warmup/loss"]) for event in said] == [
            *enumerate(losses, start=1)
        ]
        assert all("warmup/token_loss" in event["metrics"] for event in said)


def test_what_a_process_refuses_is_the_steps_error(recipe: Path, dialogues: list[Example], tmp_path: Path) -> None:
    with pytest.raises(StepFailed) as caught:
        run(recipe, begun(tmp_path / "run", dialogues), "training.max_length=65")
    assert str(caught.value).startswith("step train failed: max_length 65 exceeds the context of model ")
    assert "\n(its whole log: " in str(caught.value)
