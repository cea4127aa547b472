"""The end of a run in MLflow, written by who sees it."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.tracked import close_tracked_run

RUN_ID = "fe0e4358-8920-4486-913f-385f0269ca67"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mlflow.MlflowClient:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return mlflow.MlflowClient(tracking_uri=uri)


def test_run_gets_the_status_of_its_end_in_mlflow(client: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = client.create_experiment("mygo")

    def tracked(run_id: str) -> str:
        tags = {"hopforge.run_dir": f"/workspace/runs/mygo-world-{run_id}"}
        return str(client.create_run(experiment, tags=tags).info.run_id)

    run, other = tracked(RUN_ID), tracked("eb7e11d4-f279-42b3-a012-bc113f1b0bd4")
    step = client.create_run(experiment, tags={"mlflow.parentRunId": run}).info.run_id
    client.set_terminated(run, "FAILED")  # by the exit task of a cancelled run
    assert close_tracked_run(RUN_ID, "CANCELED") == "KILLED"
    assert [client.get_run(one).info.status for one in (run, step, other)] == ["KILLED", "KILLED", "RUNNING"]
    assert close_tracked_run(RUN_ID, "CANCELED") is None  # nothing to correct
    client.update_run(run, status="RUNNING")  # by a retry, whose exit task does not run again
    assert close_tracked_run(RUN_ID, "SUCCEEDED") == "FINISHED"
    assert close_tracked_run(RUN_ID, "RUNNING") is None
    assert close_tracked_run("unknown", "FAILED") is None
    assert [client.get_run(one).info.status for one in (run, other)] == ["FINISHED", "RUNNING"]
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert close_tracked_run(RUN_ID, "FAILED") is None


def test_unreachable_mlflow_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match="status KILLED could not be written to MLflow at http.*check MLFLOW"):
        close_tracked_run(RUN_ID, "CANCELED")
