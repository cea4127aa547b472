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
from platform_sdk.record_files import digest_records, write_jsonl
from platform_sdk.records import Rollout
from platform_sdk.sampling.models import weights_digest
from platform_sdk.tracking.journal import read, step_file
from platform_sdk.training.examples import Example
from platform_sdk.training.launch import TrainStep, launch_training
from platform_sdk.training.run import TrainResult
from tests.execution.test_local import run
from tests.process_watch import alive, wait_for
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
  digest: {type: string, description: Digest of its weights}
  selected: {type: string, description: Digest of the selected rollouts}
  training: {type: struct, description: Settings, schema: "platform_sdk.config.training:TrainSpec"}
steps:
  - id: train
    component: train
    inputs:
      run_dir: ${run.dir}
      phase: warmup
      iteration: 0
      model_path: ${parameters.model}
      model_digest: ${parameters.digest}
      selected_digest: ${parameters.selected}
      training: ${parameters.training}
      seed: 3
"""
BEGIN = (
    "import sys; from pathlib import Path; from tests.execution.test_local import run; run(*map(Path, sys.argv[1:]))"
)


@pytest.fixture
def rollouts(dialogues: list[Example]) -> list[Rollout]:
    pairs = zip(dialogues[::2], dialogues[1::2], strict=True)
    return [as_rollout(number, *pair) for number, pair in enumerate(pairs)]


@pytest.fixture
def recipe(tmp_path: Path, tiny_model: Path, rollouts: list[Rollout]) -> Path:
    folder = tmp_path / "pipelines" / "training"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    parameters = {
        "model": str(tiny_model),
        "digest": weights_digest(tiny_model),
        "selected": digest_records(rollouts),
        "training": {**SPEC.model_dump(mode="json"), "processes": 2},
    }
    values = {"pipeline": "training", "name": "small", "parameters": parameters}
    (folder / "small.yaml").write_text(json.dumps(values))  # which is YAML too
    return folder / "small.yaml"


def begun(run_dir: Path, rollouts: list[Rollout]) -> Path:
    """A run directory whose phase has its selected rollouts."""
    (run_dir / "warmup").mkdir(parents=True)
    write_jsonl(run_dir / "warmup" / "selected.jsonl", Rollout, rollouts)
    return run_dir


def workers(run_dir: Path) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "platform_sdk.training" in words and str(run_dir / "warmup" / "train-step.json") in words:
            yield int(path.parent.name)


def result(run_dir: Path) -> TrainResult:
    return TrainResult.model_validate_json((run_dir / "warmup" / "train.json").read_text())


@pytest.mark.slow  # two processes and kills are tested apart from the component too
def test_training_with_two_processes_equals_one_process_even_after_a_kill(
    recipe: Path, tiny_model: Path, rollouts: list[Rollout], tmp_path: Path
) -> None:
    alone, whole, killed = (begun(tmp_path / name, rollouts) for name in ("alone", "whole", "killed"))
    for run_dir, processes in ((alone, 1), (whole, 2)):
        launch_training(
            TrainStep(
                run_dir=run_dir, phase="warmup", model=str(tiny_model), selected=run_dir / "warmup" / "selected.jsonl",
                seed=3, spec=SPEC.model_copy(update={"processes": processes}),
            )
        )  # fmt: skip
    losses = [point.loss for point in result(whole).curve]
    assert len(losses) == 4 * 3
    assert losses == pytest.approx([point.loss for point in result(alone).curve], rel=2e-4)
    assert not (whole / "warmup" / "processes").exists()

    process = subprocess.Popen([sys.executable, "-c", BEGIN, str(recipe), str(killed)], cwd=ROOT)
    wait_for(lambda: any(killed.glob("warmup/checkpoints/*/checkpoint-[2-9]")), 300)
    at_work = list(workers(killed))
    assert len(at_work) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(map(alive, at_work)))
    assert not list(workers(killed))
    assert not (killed / "warmup" / "train.json").exists()
    assert run(recipe, killed).events == ["+train", "-train"]
    assert result(killed).weights == result(whole).weights
    assert [point.loss for point in result(killed).curve] == losses

    # Each step's figures are told once, whatever was repeated.
    assert len((killed / "warmup" / "steps.jsonl").read_text().splitlines()) == len(losses)
    events = [event for event in read(step_file(killed, "train-warmup"))[0] if event["event"] == "metrics"]
    said = [(event["iteration"], event["metrics"]) for event in events if "warmup/loss" in event["metrics"]]
    assert [(step, figures["warmup/loss"]) for step, figures in said] == [*enumerate(losses, start=1)]
    assert all("warmup/token_loss" in figures for _, figures in said)
