"""Runner of a step's processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from platform_sdk.config.cluster import CLUSTER

if TYPE_CHECKING:
    from platform_sdk.processes.launch import ProcessRunner
    from platform_sdk.tracking.step import StepRun


def job_runner(step: StepRun) -> ProcessRunner | None:
    """Return the runner of a step's processes as a job on this cluster; None outside a cluster."""
    if CLUSTER not in os.environ:
        return None
    from platform_sdk.kubeflow.training_job.here import job_runner as of_cluster

    return of_cluster(step.run_dir, step.record_job)
