"""The end of a run in MLflow, written by the command that follows or cancels the run.

Its exit task cannot be relied on: Kubeflow ends it together with a cancelled run, gives it the state RUNNING there, and
does not repeat it when a run is retried.
"""

from __future__ import annotations

import os

from platform_sdk.config.errors import UserError
from platform_sdk.tracking.runs import Status

STATUSES: dict[str, Status] = {"SUCCEEDED": "FINISHED", "CANCELED": "KILLED", "FAILED": "FAILED"}
"""MLflow's status of a run by its final state."""
RUN_DIR = "hopforge.run_dir"
"""Tag of a run in MLflow; on a cluster the directory's name ends with the id of the Kubeflow run."""


def close_tracked_run(run_id: str, state: str) -> Status | None:
    """Give a run in MLflow, and its steps that are still open, the status of the run's end.

    Args:
        run_id: Id of the Kubeflow run.
        state: Its final state.

    Returns:
        The status, if it had to be written; None if MLflow has it already, has no such run, or if
        ``MLFLOW_TRACKING_URI`` is not set.

    Raises:
        UserError: MLflow cannot be reached or refuses.
    """
    status = STATUSES.get(state)
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if status is None or not uri:
        return None
    import mlflow
    from mlflow.exceptions import MlflowException

    client = mlflow.MlflowClient(tracking_uri=uri)
    try:
        experiments = [one.experiment_id for one in client.search_experiments()]
        found = client.search_runs(experiments, f"tags.`{RUN_DIR}` LIKE '%-{run_id}'", max_results=1)
        if not found:
            return None
        run = found[0]
        open_steps = client.search_runs(
            [run.info.experiment_id],
            f"tags.`mlflow.parentRunId` = '{run.info.run_id}' AND attributes.status = 'RUNNING'",
        )
        for step in open_steps:
            client.set_terminated(step.info.run_id, status)
        if run.info.status == status:
            return None
        client.set_terminated(run.info.run_id, status)
    except (MlflowException, OSError) as error:
        raise UserError(
            f"the run's status {status} could not be written to MLflow at {uri}: {error}; check MLFLOW_TRACKING_URI, "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        ) from error
    return status
