"""The pipeline's training step: on one process, as a command, and on two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import TrainSpec
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Question, Rollout, Trajectory
from platform_sdk.sampling.models import weights_digest
from platform_sdk.training.examples import Example
from platform_sdk.training.launch import TrainStep, launch_training
from platform_sdk.training.run import TrainResult
from platform_sdk.training.steps import train_step

ROOT = Path(__file__).parents[2]
SPEC = TrainSpec(
    learning_rate=1e-2, minimum_learning_rate=1e-3, batch_size=7, micro_batch_tokens=30, device="cpu", max_length=16
)


def as_rollout(number: int, planner: Example, worker: Example) -> Rollout:
    """Two dialogues to train on, and one for scoring only."""

    def trajectory(role: str, name: str, example: Example, **use: Any) -> Trajectory:
        return Trajectory(
            role=role, id=name, token_ids=example.token_ids, agent_mask=example.agent_mask,
            logprobs=example.logprobs, turns=(), **use,
        )  # fmt: skip

    return Rollout(
        question=Question(id=f"q{number}", text="?", answers=("a",), dataset="d"), attempt=0, seed=0,
        main=trajectory("planner", "planner", planner),
        others=(trajectory("worker", "1.0", worker), trajectory("worker", "probe", worker, use="scoring")),
        outcome="answered", weights="w", corpus="c",
    )  # fmt: skip


@pytest.fixture(scope="module")
def selected(dialogues: list[Example], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rollouts") / "selected.jsonl"
    pairs = zip(dialogues[::2], dialogues[1::2], strict=True)
    write_jsonl(path, Rollout, [as_rollout(number, *pair) for number, pair in enumerate(pairs)])
    return path


def test_the_step_leaves_a_model_and_its_figures(tiny_model: Path, selected: Path, tmp_path: Path) -> None:
    result = train_step(tmp_path, "iteration-01", str(tiny_model), selected, SPEC, 3)
    folder = tmp_path / "iteration-01"
    assert sorted(path.name for path in folder.iterdir()) == ["model", "steps.jsonl", "train.json"]
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert [(step["step"], step["loss"], step["token_loss"]) for step in steps] == [
        (point.step, point.loss, point.statistics["token_loss"]) for point in result.curve
    ]
    assert TrainResult.model_validate_json((folder / "train.json").read_text()) == result
    assert result.examples == 24
    assert result.truncated > 0
    assert weights_digest(folder / "model") == result.weights
    assert set(result.parents) == {"model", "rollouts"}
    before = (folder / "model" / "model.safetensors").stat().st_mtime_ns
    assert train_step(tmp_path, "iteration-01", str(tiny_model), selected, SPEC, 3) == result
    assert (folder / "model" / "model.safetensors").stat().st_mtime_ns == before


def test_empty_selection_keeps_the_input_model_with_a_warning(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_jsonl(tmp_path / "none.jsonl", Rollout, [])
    result = train_step(tmp_path, "warmup", str(tiny_model), tmp_path / "none.jsonl", SPEC, 3)
    assert result.skipped == "no accepted trajectory"
    assert result.weights == weights_digest(tiny_model)
    assert "keeping the input model" in caplog.text


@pytest.mark.parametrize(
    "change",
    [{"normalization": "sequence"}, {"deepspeed": "zero2"}, {"deepspeed": "zero3"}],
    ids=lambda change: "-".join(change.values()),
)
def test_training_with_two_processes_equals_one_process(
    tiny_model: Path, selected: Path, tmp_path: Path, change: dict[str, str]
) -> None:
    """24 examples in steps of 7: shares of unequal length, and a last step of three."""
    if "deepspeed" in change:
        pytest.importorskip("deepspeed", reason="deepspeed is not installed")
    spec = SPEC.model_copy(update=change)
    alone = train_step(tmp_path, "alone", str(tiny_model), selected, spec.model_copy(update={"deepspeed": None}), 3)
    step = TrainStep(
        run_dir=tmp_path, phase="two", model=str(tiny_model), selected=selected, seed=3,
        spec=spec.model_copy(update={"processes": 2}),
    )  # fmt: skip
    two = launch_training(step)
    assert two == TrainResult.model_validate_json((tmp_path / "two" / "train.json").read_text())
    assert two.inputs == alone.inputs or "deepspeed" in change  # how many processes decides nothing
    assert TrainStep.model_validate_json((tmp_path / "two" / "train-step.json").read_text()) == step
    assert [e.loss for e in two.curve] == pytest.approx([e.loss for e in alone.curve], rel=2e-4)
    assert [e.statistics["token_loss"] for e in two.curve] == pytest.approx(
        [e.statistics["token_loss"] for e in alone.curve], rel=2e-4
    )
    assert [e.grad_norm for e in two.curve] == pytest.approx([e.grad_norm for e in alone.curve], rel=2e-3)
    found = load_file(Path(two.model) / "model.safetensors")  # DeepSpeed's holds the tied output matrix too
    for name, tensor in load_file(Path(alone.model) / "model.safetensors").items():
        torch.testing.assert_close(found[name], tensor, atol=3e-4, rtol=3e-4, msg=name)


def test_deepspeed_without_torchrun_is_refused(tiny_model: Path, selected: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="torchrun"):
        train_step(tmp_path, "a", str(tiny_model), selected, SPEC.model_copy(update={"deepspeed": "zero2"}), 3)


def test_a_wrong_job_file_is_one_clear_error(tmp_path: Path) -> None:
    step = tmp_path / "train-step.json"
    step.write_text('{"run_dir": "r", "phase": "p", "model": "m", "selected": "s", "seed": 0, "spec": {"epochs": 0}}')
    finished = subprocess.run(
        [sys.executable, "-m", "platform_sdk.training", "--spec", str(step)], cwd=ROOT, capture_output=True, text=True
    )
    assert finished.returncode == 2
    assert "spec.epochs" in finished.stderr
    assert "Traceback" not in finished.stderr
