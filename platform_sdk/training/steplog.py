"""The figures of every optimiser step, in a file that grows while a training goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

# Of no step, or not the same when a step is repeated.
_LEFT_OUT = frozenset({"epoch", "seconds"})


class StepLog(TrainerCallback):  # type: ignore[misc]
    """Appends a JSON line for each optimiser step: ``step``, ``loss``, ``learning_rate``, ``grad_norm``, statistics.

    A training that goes on from a checkpoint takes back what was written after it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True) if self._path.exists() else []
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        temporary.write_text("".join(lines[: state.global_step]), encoding="utf-8")
        temporary.replace(self._path)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not state.is_world_process_zero or not logs or "loss" not in logs:
            return
        figures = {name: value for name, value in logs.items() if name not in _LEFT_OUT}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **figures}) + "\n")
