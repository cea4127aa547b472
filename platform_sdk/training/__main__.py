"""``python -m platform_sdk.training --spec FILE``: one training step from a JSON file, by itself or for ``torchrun``.

The file is a ``launch.Job``::

    {"run_dir": "runs/a", "phase": "iteration-01", "model": "…", "selected": "…/selected.jsonl",
     "seed": 0, "spec": {"learning_rate": 5e-7, …}}
"""

from __future__ import annotations

import sys
from pathlib import Path

from platform_sdk.files import read_model
from platform_sdk.training.entry import entry
from platform_sdk.training.launch import Job


def train(spec_file: Path) -> None:
    """Run the job in the file."""
    job = read_model(spec_file, Job)
    from platform_sdk.training.steps import train_step

    train_step(job.run_dir, job.phase, job.model, job.selected, job.spec, job.seed, job.role)


if __name__ == "__main__":
    sys.exit(entry(train, "platform_sdk.training"))
