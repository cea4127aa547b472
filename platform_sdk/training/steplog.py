"""The figures of every optimiser step, in a file that grows while a training goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from platform_sdk.files import write_text

# Of no step, or not the same when a step is repeated.
_LEFT_OUT = frozenset({"step", "epoch", "seconds"})


class StepLog(TrainerCallback):  # type: ignore[misc]
    """Appends a JSON line for each optimiser step: ``step``, ``loss``, ``learning_rate``, ``grad_norm``, statistics.

    A training that resumes from a checkpoint begins the file with the steps that the checkpoint knows.
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
