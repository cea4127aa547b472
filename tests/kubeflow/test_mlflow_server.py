"""Manifest of the MLflow server, against MLflow and against an S3 server of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from tests.kubeflow.rendered import Item, built, workloads
from tests.process_watch import wait_for

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
def test_mlflow_bucket_is_created_if_absent(head: int, asked: list[str], ends_well: bool) -> None:
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


def users_job(url: str, folder: Path, admin_password: str) -> subprocess.CompletedProcess[str]:
    """Run the job that creates users, as its pod would."""
    [job] = dict(workloads(built("base")))["mlflow-users"]["spec"]["containers"]
    given = {"MLFLOW_URL": url, "USERS": str(folder), "ADMIN_PASSWORD": admin_password}
    assert given.keys() == {one["name"] for one in job["env"]}
    command = [sys.executable, *job["command"][1:], *job["args"]]
    return subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, timeout=120)


def test_the_job_that_creates_users_waits_until_mlflow_answers(tmp_path: Path) -> None:
    """MLflow starts later than the job: first nothing listens, then the server is not ready, then it answers."""
    health, requested = iter([503, 200]), list[str]()

    class Mlflow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(next(health))

        def do_POST(self) -> None:
            self._answer(200)

        def _answer(self, status: int) -> None:
            requested.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    (tmp_path / "hopforge").write_text("a-teams-password")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    servers: list[ThreadingHTTPServer] = []

    def start() -> None:
        servers.append(ThreadingHTTPServer(("127.0.0.1", port), Mlflow))
        servers[0].serve_forever()

    late = threading.Timer(3, start)
    late.daemon = True
    late.start()
    try:
        done = users_job(f"http://127.0.0.1:{port}", tmp_path, "only-for-the-admin")
    finally:
        late.cancel()
        for server in servers:
            server.shutdown()
            server.server_close()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "waiting for MLflow" in done.stdout
    assert done.stdout.endswith("user hopforge may log in\n")
    assert requested == ["GET /health", "GET /health", "POST /api/2.0/mlflow/users/create"]


@dataclass(frozen=True)
class Server:
    """The MLflow server of the manifest with files in the place of its database and its store."""

    url: str
    admin: tuple[str, str]

    def ask(self, path: str, who: tuple[str, str] | None = None, **body: str) -> int:
        """POST to the tracking API; the status."""
        return requests.post(f"{self.url}/api/2.0/mlflow/{path}", json=body, auth=who, timeout=30).status_code

    def create_users(self, folder: Path, **passwords: str) -> None:
        """Run the job that creates users."""
        folder.mkdir(exist_ok=True)
        (folder / "..data").mkdir(exist_ok=True)  # as in the volume of a Secret
        for name, password in passwords.items():
            (folder / name).write_text(password)
        done = users_job(self.url, folder, self.admin[1])
        assert done.returncode == 0, done.stderr


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """The real server, started with the manifest's words and variables."""
    pytest.importorskip("flask_wtf", reason="the extra [cluster] is not installed")
    [config] = [i["data"] for i in built("base") if i["kind"] == "ConfigMap" and "basic_auth.ini" in i.get("data", {})]
    database = f"sqlite:///{tmp_path}/mlflow.db"
    text = config["basic_auth.ini"].replace("postgresql+psycopg2://mlflow-db:5432/mlflow", database)
    assert database in text
    (tmp_path / "basic_auth.ini").write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    changed = {"--artifacts-destination": str(tmp_path / "objects"), "--port": str(port), "--workers": "1"}
    [container] = pod()["containers"]
    words = [f"{word}={changed.get(word, value)}" if value else word
             for word, _, value in (one.partition("=") for one in container["args"])]  # fmt: skip
    secrets = {"MLFLOW_AUTH_ADMIN_PASSWORD": "only-for-the-admin", "MLFLOW_FLASK_SERVER_SECRET_KEY": "k" * 32}
    given = {one["name"]: one["value"] for one in container["env"] if "value" in one} | secrets
    assert secrets.keys() <= {one["name"] for one in container["env"] if "secretKeyRef" in one.get("valueFrom", {})}
    given |= {"MLFLOW_BACKEND_STORE_URI": database, "MLFLOW_AUTH_CONFIG_PATH": str(tmp_path / "basic_auth.ini")}
    given |= {"HOME": str(tmp_path)}
    log = tmp_path / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", *container["command"], *words],
            env={**os.environ, **given}, stdout=stream, stderr=stream, start_new_session=True,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: process.poll() is not None or answers(f"{url}/health"), seconds=180)
        assert process.poll() is None, log.read_text()
        yield Server(url, (given["MLFLOW_AUTH_ADMIN_USERNAME"], secrets["MLFLOW_AUTH_ADMIN_PASSWORD"]))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False


def test_mlflow_requires_login_and_teams_change_only_their_own_experiments(server: Server, tmp_path: Path) -> None:
    ours, theirs = ("hopforge", "a-teams-password"), ("team-b", "another-password")
    server.create_users(tmp_path / "users", **dict([ours, theirs]))
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
    server.create_users(tmp_path / "users", hopforge="a-newer-password")
    assert server.ask(create, ours, name="second") == 401
    assert server.ask(create, ("hopforge", "a-newer-password"), name="second") == 200
