"""GPU-hours of a step and of a run, as their journals record them.

Each source of use, a process or a job, is recorded by its latest total. A process that is killed records nothing.
"""

from __future__ import annotations

import math
from pathlib import Path

from platform_sdk.tracking.journal import RUN, journals, read
from platform_sdk.tracking.manifest import Job

GPU_HOURS = "gpu_hours"
"""Metric of a step, and of a run with the sum of its steps."""
USED = "used"
JOB = "job"
DIGITS = 6


def gpu_hours_of_step(journal: Path) -> float:
    """Return the GPU-hours of all attempts of a step."""
    latest = {event["source"]: float(event[GPU_HOURS]) for event in read(journal)[0] if event["event"] == USED}
    return round(math.fsum(latest.values()), DIGITS)


def jobs_of_step(journal: Path) -> tuple[Job, ...]:
    """Return the jobs of all attempts of a step."""
    latest = {event["source"]: event[JOB] for event in read(journal)[0] if event["event"] == USED and JOB in event}
    return tuple(map(Job.model_validate, latest.values()))


def gpu_hours_of_run(run_dir: Path) -> float:
    """Return the GPU-hours of all steps of a run."""
    steps = (path for key, path in journals(run_dir).items() if key != RUN)
    return round(math.fsum(map(gpu_hours_of_step, steps)), DIGITS)
