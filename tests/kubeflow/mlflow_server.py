"""The manifest's MLflow server and the job of its users, as processes of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.kubeflow.rendered import Item, built, workloads
from tests.process_watch import free_port, wait_for


def pod() -> Item:
    return dict(dict(workloads(built("base")))["mlflow"]["spec"])


def file_of(name: str) -> str:
    """Return a file of the manifest's ConfigMaps."""
    [text] = [item["data"][name] for item in built("base") if item["kind"] == "ConfigMap" and name in item["data"]]
    return str(text)


def run_users_job(
    url: str, folder: Path, admin_password: str, teams: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the job that creates users, workspaces and roles, as its pod would."""
    spec = dict(workloads(built("base")))["mlflow-users"]["spec"]
    [job] = spec["containers"]
    absent = folder / ".absent.json"
    given = {
        "MLFLOW_URL": url, "USERS": str(folder), "TEAMS": str(teams or absent), "ADMIN_PASSWORD": admin_password,
    }  # fmt: skip
    assert given.keys() == {one["name"] for one in job["env"]}
    mounted = {one["mountPath"]: one["name"] for one in job["volumeMounts"]}
    maps = {one["name"]: one["configMap"]["name"] for one in spec["volumes"] if "configMap" in one}
    _, path = job["command"]
    script = next(
        item["data"][Path(path).name]
        for item in built("base")
        if item["kind"] == "ConfigMap" and item["metadata"]["name"] == maps[mounted[str(Path(path).parent)]]
    )
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, timeout=600)


@dataclass(frozen=True)
class Server:
    """The MLflow server of the manifest with an SQLite file as its database and a folder as its object store."""

    url: str
    admin: tuple[str, str]

    def ask(self, path: str, who: tuple[str, str] | None = None, **body: str) -> int:
        """POST to the tracking API; return the status."""
        return requests.post(f"{self.url}/api/2.0/mlflow/{path}", json=body, auth=who, timeout=30).status_code

    def create_users(
        self, folder: Path, passwords: Mapping[str, str], teams: Mapping[str, Any] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the job that creates users, with the Secret's entries in ``folder``."""
        folder.mkdir(exist_ok=True)
        (folder / "..data").mkdir(exist_ok=True)  # as in the volume of a Secret
        for name, password in passwords.items():
            (folder / name).write_text(password)
        path = folder.with_name("teams.json")
        if teams is not None:
            path.write_text(json.dumps(teams))
        return run_users_job(self.url, folder, self.admin[1], None if teams is None else path)


@contextmanager
def mlflow_server(folder: Path) -> Iterator[Server]:
    """Start the real server with the manifest's arguments and variables."""
    database = f"sqlite:///{folder}/mlflow.db"
    text = file_of("basic_auth.ini").replace("postgresql+psycopg2://mlflow-db:5432/mlflow", database)
    assert database in text
    (folder / "basic_auth.ini").write_text(text)
    port = free_port()
    changed = {"--artifacts-destination": str(folder / "objects"), "--port": str(port), "--workers": "1"}
    [container] = pod()["containers"]
    words = [f"{word}={changed.get(word, value)}" if value else word
             for word, _, value in (one.partition("=") for one in container["args"])]  # fmt: skip
    secrets = {"MLFLOW_AUTH_ADMIN_PASSWORD": "only-for-the-admin", "MLFLOW_FLASK_SERVER_SECRET_KEY": "k" * 32}
    given = {one["name"]: one["value"] for one in container["env"] if "value" in one} | secrets
    assert secrets.keys() <= {one["name"] for one in container["env"] if "secretKeyRef" in one.get("valueFrom", {})}
    given |= {"MLFLOW_BACKEND_STORE_URI": database, "MLFLOW_AUTH_CONFIG_PATH": str(folder / "basic_auth.ini")}
    given |= {"HOME": str(folder)}
    log = folder / "log"
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
        process.wait(120)


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False
