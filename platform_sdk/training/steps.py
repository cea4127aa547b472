"""The training step of a pipeline: accepted rollouts in, a model and its figures out."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from platform_sdk.config.training import TrainSpec
from platform_sdk.files import write_text
from platform_sdk.processes.environment import is_main_process
from platform_sdk.record_files import digest_records, read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.training.examples import examples_of
from platform_sdk.training.run import TrainResult, train

STEPS = "steps.jsonl"
# Fields of a log entry that are not figures, and the step's duration.
_LEFT_OUT = frozenset({"step", "epoch", "seconds"})

logger = logging.getLogger(__name__)


def train_step(
    run_dir: Path, phase: str, model: str, selected: Path, spec: TrainSpec, seed: int, role: str | None = None
) -> TrainResult:
    """Train ``model`` on the trajectories of the ``selected`` rollouts, of planner and workers.

    Writes ``<run_dir>/<phase>/model`` (a Hugging Face directory with tokenizer, or an adapter) and
    ``<phase>/train.json`` (the result), and while it trains ``<phase>/steps.jsonl`` (``StepLog``). A finished step is
    not repeated, a killed one resumes from ``<phase>/checkpoints`` and gives the same weights. Without a selected
    rollout the input model is kept, and the result has ``skipped``.

    Args:
        selected: JSONL file of the accepted Rollout records.
        role: train on this role only; None for all roles.
    """
    folder = Path(run_dir) / phase
    rollouts = list(read_jsonl(selected, Rollout))
    result = train(
        spec,
        examples_of(rollouts, role=role),
        model,
        folder / "model",
        seed=seed,
        checkpoints=folder / "checkpoints",
        parents={"rollouts": digest_records(rollouts)},
        callbacks=[StepLog(folder / STEPS)],
    )
    if is_main_process():
        write_text(folder / "train.json", result.model_dump_json(indent=1))
        _tell(phase, result)
    return result


def _tell(phase: str, result: TrainResult) -> None:
    if result.skipped:
        logger.warning("%s: no training examples (%s); keeping the input model", phase, result.skipped)
    else:
        logger.info(
            "%s: %d examples, %d agent tokens of %d, loss %.4f to %.4f in %.1f s",
            phase, result.examples, result.tokens_trained, result.tokens_total, result.loss_first, result.loss_last,
            result.training_seconds,
        )  # fmt: skip
    if result.truncated or result.dropped_too_long or result.dropped_empty:
        logger.warning(
            "%s: %d examples truncated (%d tokens cut), %d dropped as too long, %d dropped without an agent's token",
            phase, result.truncated, result.tokens_cut, result.dropped_too_long, result.dropped_empty,
        )  # fmt: skip


class StepLog(TrainerCallback):  # type: ignore[misc]
    """Log of optimiser steps as JSON lines: ``step``, ``loss``, ``learning_rate``, ``grad_norm``, statistics.

    A training that resumes from a checkpoint starts the file with the checkpoint's steps.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            lines = [_line(entry["step"], entry) for entry in state.log_history if "loss" in entry]
            write_text(self._path, "".join(lines))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not state.is_world_process_zero or not logs or "loss" not in logs:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line(state.global_step, logs))


def _line(step: int, logs: dict[str, float]) -> str:
    figures = {name: value for name, value in logs.items() if name not in _LEFT_OUT}
    return json.dumps({"step": step, **figures}) + "\n"
