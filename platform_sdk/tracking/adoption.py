"""MLflow runs that somebody else created and that a run takes as its own.

``MLFLOW_RUN_ID`` names one. Outside of Kubeflow Pipelines it becomes the whole run. Pipelines' MLflow plugin creates a
run for the pipeline run and one below it for each step, and gives each step's pod the latter: there the parent becomes
the whole run. Whoever created a run ends it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platform_sdk.tracking.journal import Event, read, run_file

GIVEN = "MLFLOW_RUN_ID"
PARENT = "mlflow.parentRunId"


def given_here(run_dir: Path) -> dict[str, Any]:
    """Return the MLflow run that Kubeflow Pipelines created for this step, as a field of its start."""
    starts = [event for event in read(run_file(run_dir))[0] if event["event"] == "started"]
    given = os.environ.get(GIVEN)
    return {"adopt": given} if given and starts and starts[0].get("in_step") else {}


def given_to_step(journal: Path) -> str | None:
    """Return the run that Kubeflow Pipelines created for a step's first attempt; None if it created none.

    A repeated attempt gets another run, but its events belong to the first run, like the events of earlier attempts.
    """
    given = (event.get("adopt") for event in read(journal)[0] if event["event"] == "started")
    return next((str(run_id) for run_id in given if run_id), None)


def adopted_run(started: Event, tags: Mapping[str, str]) -> str:
    """Return the run that a run adopts.

    Args:
        started: The first event of the run, which names the run that its process was given.
        tags: The tags of the run that the process was given.
    """
    given = str(started["adopt"])
    return tags.get(PARENT, given) if started.get("in_step") else given
