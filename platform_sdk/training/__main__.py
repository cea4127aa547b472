"""``python -m platform_sdk.training --spec FILE``: one training step from a JSON file, for ``torchrun``.

The file names the arguments of ``steps.train_step``::

    {"run_dir": "runs/a", "phase": "iteration-01", "model": "…", "selected": "…/selected.jsonl",
     "seed": 0, "spec": {"learning_rate": 5e-7, …}}
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import TrainSpec
from platform_sdk.records import RecordError


class Job(BaseModel):
    """What the specification file says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_dir: Path
    phase: str
    model: str
    selected: Path
    seed: int
    spec: TrainSpec


def main() -> int:
    """Run the job; return the exit status (2: the message on stderr says what to mend)."""
    parser = argparse.ArgumentParser(prog="python -m platform_sdk.training", description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help="JSON file of the training step")
    path: Path = parser.parse_args().spec
    logging.basicConfig(level=logging.INFO if os.environ.get("RANK", "0") == "0" else logging.ERROR)
    try:
        job = Job.model_validate_json(path.read_text())
        from platform_sdk.training.steps import train_step

        train_step(job.run_dir, job.phase, job.model, job.selected, job.spec, job.seed)
    except (OSError, ValidationError, UserError, RecordError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
