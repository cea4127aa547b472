"""``hopforge explain`` of a run on servers that refuse, know nothing, do not answer, or answer other objects."""

from __future__ import annotations

import pytest

pytest.importorskip("kfp.kubernetes", reason="the extra [cluster] is not installed")
pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from kubeflow.training import TrainingClient
from kubernetes.client import Configuration
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.diagnosis.explain import explain
from platform_sdk.errors import UserError
from platform_sdk.kubeflow.remote.facts import collect
from platform_sdk.kubeflow.remote.jobs import Jobs
from tests.http_server import HttpServer
from tests.kubeflow.remote.cluster import Cluster
from tests.kubeflow.remote.conftest import cluster, kfp, kubernetes, no_credentials  # noqa: F401
from tests.planning.test_rubbish import ANSWERS

ERROR = "selection.attempts must be at most 16, but is 20"
MAY_BE_EMPTY = {"404", "404 in plain text", "null", "fields that are null"}
"""Answers that a cluster without the kind of object, or without an object, gives too."""


@pytest.mark.parametrize("answer", ANSWERS)
def test_any_answer_of_the_api_server_leaves_what_pipelines_says(cluster: Cluster, answer: str) -> None:  # noqa: F811
    cluster.execution.step("begin", "FAILED", ERROR)
    cluster.execution.state("FAILED")
    with HttpServer(lambda _: ANSWERS[answer]) as server:
        configuration = Configuration(host=server.url)
        configuration.retries = False
        jobs = Jobs("team-a", connection=TrainingClient(client_configuration=configuration))
        facts, notes = collect(cluster.server, cluster.run, jobs)
    about_jobs = [note for note in notes if "MLFLOW_TRACKING_URI" not in note]
    assert about_jobs or answer in MAY_BE_EMPTY
    for note in about_jobs:
        assert len(note) < 1000  # the reasons of several unseen kinds may be one note
        assert "\n" not in note
        assert any(part in note for part in ("API server", "unexpected form"))
    explained = explain(facts)
    assert explained.state == "FAILED"
    assert explained.findings


@pytest.mark.parametrize("answer", ANSWERS)
def test_any_answer_of_pipelines_gives_one_sentence(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform_sdk.kubeflow.remote.connection.PAUSES", (0.0,) * 5)
    with HttpServer(lambda _: ANSWERS[answer]) as server:
        done = CliRunner().invoke(app, ["explain", "fe0e4358", "--host", server.url, "--namespace", "team-a"])
    assert isinstance(done.exception, UserError), repr(done.exception)
    text = str(done.exception)
    assert len(text) < 700
    assert server.url in text
