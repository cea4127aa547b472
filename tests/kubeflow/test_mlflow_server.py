"""What the manifest of the MLflow server says, against MLflow and against an S3 server of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.kubeflow.rendered import Item, built, workloads

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def pod() -> Item:
    return dict(dict(workloads(built("base")))["mlflow"]["spec"])


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
def test_it_answers_by_its_names_in_the_cluster(host: str, taken: bool) -> None:
    from mlflow.server.security_utils import is_allowed_host_header

    [server] = pod()["containers"]
    [hosts] = [word.partition("=")[2] for word in server["args"] if word.startswith("--allowed-hosts=")]
    assert is_allowed_host_header(hosts.split(","), host) is taken


def test_its_database_asks_the_environment_for_user_and_password() -> None:
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


@contextmanager
def object_store(head: int) -> Iterator[tuple[str, list[str]]]:
    """An S3 server whose answer to HEAD is ``head``; its URL, and what it was asked."""
    asked: list[str] = []

    class Store(BaseHTTPRequestHandler):
        def _answer(self, status: int) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_HEAD(self) -> None:
            self._answer(head)

        def do_PUT(self) -> None:
            self._answer(200)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("head", "asked", "ends_well"),
    [
        (404, ["HEAD /mlflow", "PUT /mlflow"], True),
        (200, ["HEAD /mlflow"], True),
        (403, ["HEAD /mlflow"], False),  # its keys are not the store's: the pod does not start, and says why
    ],
)
def test_its_bucket_is_made_where_there_is_none(head: int, asked: list[str], ends_well: bool) -> None:
    pytest.importorskip("boto3", reason="the extra [cluster] is not installed")
    [before] = pod()["initContainers"]
    [server] = pod()["containers"]
    [destination] = [word for word in server["args"] if word.startswith("--artifacts-destination=")]
    assert destination == "--artifacts-destination=s3://mlflow"
    with object_store(head) as (url, requests):
        given = {one["name"]: one.get("value", "x") for one in before["env"]} | {"MLFLOW_S3_ENDPOINT_URL": url}
        command = [sys.executable, *before["command"][1:], *before["args"]]
        done = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) is ends_well, done.stderr
    assert requests == asked
