"""Manifest of the MLflow server, against MLflow and against an S3 server of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from tests.http_server import HttpRequest, HttpResponse, HttpServer
from tests.kubeflow.mlflow_server import Server, mlflow_server, pod, run_users_job
from tests.kubeflow.rendered import built, workloads
from tests.process_watch import free_port

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.mark.parametrize(
    ("host", "taken"),
    [
        ("mlflow:5000", True),
        ("mlflow.hopforge-services:5000", True),
        ("mlflow.hopforge-services.svc:5000", True),
        ("mlflow.hopforge-services.svc.cluster.local:5000", True),
        ("localhost:5001", True),
        ("127.0.0.1:5000", True),
        ("mlflow.example.com:5000", False),
        ("example.com", False),
    ],
)
def test_mlflow_accepts_only_its_names_in_the_cluster(host: str, taken: bool) -> None:
    from mlflow.server.security_utils import is_allowed_host_header

    [server] = pod()["containers"]
    [hosts] = [word.partition("=")[2] for word in server["args"] if word.startswith("--allowed-hosts=")]
    assert is_allowed_host_header(hosts.split(","), host) is taken


def test_mlflow_database_reads_user_and_password_from_the_environment() -> None:
    from sqlalchemy.engine import make_url

    [server] = pod()["containers"]
    variables = {one["name"]: one for one in server["env"]}
    address = make_url(variables["MLFLOW_BACKEND_STORE_URI"]["value"])
    _, given = address.get_dialect()().create_connect_args(address)
    assert given == {"host": "mlflow-db", "dbname": "mlflow", "port": 5432}  # the rest is libpq's to find
    database = dict(workloads(built("base")))["mlflow-db"]["spec"]["containers"][0]
    made = {one["name"]: one for one in database["env"]}
    assert variables["PGUSER"]["value"] == made["POSTGRES_USER"]["value"]
    assert variables["PGPASSWORD"]["valueFrom"] == made["POSTGRES_PASSWORD"]["valueFrom"]


@pytest.mark.parametrize(
    ("head", "asked", "ends_well"),
    [
        (404, ["HEAD /mlflow", "PUT /mlflow"], True),
        (200, ["HEAD /mlflow"], True),
        (403, ["HEAD /mlflow"], False),  # its keys are not the store's: the pod does not start, and says why
    ],
)
def test_mlflow_bucket_is_created_if_absent(head: int, asked: list[str], ends_well: bool) -> None:
    pytest.importorskip("boto3", reason="the extra [cluster] is not installed")
    [before] = pod()["initContainers"]
    [server] = pod()["containers"]
    [destination] = [word for word in server["args"] if word.startswith("--artifacts-destination=")]
    assert destination == "--artifacts-destination=s3://mlflow"
    with HttpServer(lambda request: (head if request.method == "HEAD" else 200, b"")) as store:
        given = {one["name"]: one.get("value", "x") for one in before["env"]} | {"MLFLOW_S3_ENDPOINT_URL": store.url}
        command = [sys.executable, *before["command"][1:], *before["args"]]
        done = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) is ends_well, done.stderr
    assert [f"{request.method} {request.path}" for request in store.received] == asked


def test_the_job_that_creates_users_waits_until_mlflow_answers(tmp_path: Path) -> None:
    """MLflow starts later than the job: first nothing listens, then it is not ready, then it answers with an error."""
    health, requested = iter([503, 200]), list[str]()

    def answer(request: HttpRequest) -> HttpResponse:
        requested.append(f"{request.method} {request.path}")
        return next(health) if request.method == "GET" else 500, b""

    (tmp_path / "hopforge").write_text("a-teams-password")
    port = free_port()
    with ExitStack() as started:
        late = threading.Timer(3, lambda: started.enter_context(HttpServer(answer, port)))
        late.daemon = True
        late.start()
        try:
            done = run_users_job(f"http://127.0.0.1:{port}", tmp_path, "only-for-the-admin")
        finally:
            late.cancel()
    assert done.stdout.splitlines()[-1] == f"waiting for MLflow at http://127.0.0.1:{port}: HTTP 503"
    assert (done.returncode, done.stderr) == (1, "user hopforge: HTTP 500: \n")
    assert requested == ["GET /health", "GET /health", "POST /api/2.0/mlflow/users/create"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    pytest.importorskip("flask_wtf", reason="the extra [cluster] is not installed")
    with mlflow_server(tmp_path) as server:
        yield server


def test_mlflow_without_teams_requires_login_and_users_change_only_their_own_experiments(
    server: Server, tmp_path: Path
) -> None:
    ours, theirs = ("hopforge", "a-teams-password"), ("team-b", "another-password")
    assert server.create_users(tmp_path / "users", dict([ours, theirs])).returncode == 0
    create, delete, search = "experiments/create", "experiments/delete", "experiments/search"
    assert server.ask(create, name="nobodys") == 401
    assert server.ask(search, max_results="10") == 401
    assert server.ask(create, ("hopforge", "wrong-password"), name="nobodys") == 401
    assert server.ask("users/create", ours, username="x", password="a-long-password") == 403
    made = requests.post(f"{server.url}/api/2.0/mlflow/{create}", json={"name": "mygo"}, auth=ours, timeout=30).json()
    assert server.ask("runs/create", ours, experiment_id=made["experiment_id"]) == 200
    # Another team reads it, and changes nothing.
    read = {"params": {"experiment_id": made["experiment_id"]}, "auth": theirs, "timeout": 30}
    assert requests.get(f"{server.url}/api/2.0/mlflow/experiments/get", **read).status_code == 200
    assert server.ask("runs/create", theirs, experiment_id=made["experiment_id"]) == 403
    assert server.ask(delete, theirs, experiment_id=made["experiment_id"]) == 403
    # A changed password is the one that counts, when the job has run again.
    assert server.create_users(tmp_path / "users", {"hopforge": "a-newer-password"}).returncode == 0
    assert server.ask(create, ours, name="second") == 401
    assert server.ask(create, ("hopforge", "a-newer-password"), name="second") == 200
