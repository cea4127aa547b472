"""``python -m platform_sdk.training --spec FILE``: one training step from a JSON file, alone or under ``torchrun``.

The file is a ``launch.TrainStep``::

    {"run_dir": "runs/a", "phase": "iteration-01", "model": "…", "selected": "…/selected.jsonl",
     "seed": 0, "spec": {"learning_rate": 5e-7, …}}
"""

from __future__ import annotations

import sys
from pathlib import Path

from platform_sdk.files import read_model
from platform_sdk.processes.entry import entry
from platform_sdk.training.launch import TrainStep


def train(spec_file: Path) -> None:
    """Run the step in the file."""
    step = read_model(spec_file, TrainStep)
    from platform_sdk.training.steps import train_step

    train_step(step.run_dir, step.phase, step.model, step.selected, step.spec, step.seed, step.role)


if __name__ == "__main__":
    sys.exit(entry(train, "platform_sdk.training"))
