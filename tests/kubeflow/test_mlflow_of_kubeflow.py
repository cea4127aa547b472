"""MLflow's server with Kubeflow's own plugins, which asks the API server what a token's account may do.

The API server here answers by the Roles that ``hopforge teams render`` writes for ``mlflow: kubernetes``.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

pytest.importorskip("mlflow_kubernetes_plugins", reason="Kubeflow's plugins are not installed (Python 3.12 or later)")

from platform_sdk.tracking import server as tracking
from tests.http_server import HttpRequest, HttpResponse, HttpServer
from tests.kubeflow.mlflow_server import answers
from tests.kubeflow.test_mlflow_workspaces import Answer, Client, changes, creates, make_content, reads
from tests.planning.test_cluster_plan import KUBECONFIG
from tests.process_watch import free_port, wait_for
from tests.teams.files import MANIFESTS, kustomized, read, render
from tests.teams.rights import Request, Rights, Subject

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

CONTENT = read((MANIFESTS / "teams.yaml").read_text())[0] | {"mlflow": "kubernetes"}
RUNS, LAUNCHER, OTHER_RUNS = (Subject("default-editor", "search"), Subject("launcher", "search"),
                              Subject("default-editor", "reading"))  # fmt: skip
JOBS, MEMBER, OTHER, AUDITOR = (Subject("default", "search"), Subject("eve@example.com"), Subject("dan@example.com"),
                                Subject("carla@example.com"))  # fmt: skip
SUBJECTS = (RUNS, LAUNCHER, OTHER_RUNS, JOBS, MEMBER, OTHER, AUDITOR)


def token(subject: Subject) -> str:
    """Return a token of an account, whose signature only the API server looks at."""
    name = f"system:serviceaccount:{subject.namespace}:{subject.name}" if subject.namespace else subject.name
    parts = ({"alg": "none"}, {"sub": name})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".x"


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An API server with the teams' namespaces that reviews access by the rendered Roles."""
    folder = tmp_path_factory.mktemp("teams")
    render(CONTENT, folder)
    rights = Rights(kustomized(folder))
    subjects = {f"Bearer {token(subject)}": subject for subject in SUBJECTS}
    namespaces = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in ("search", "reading")]

    def answer(request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            if not request.path.startswith("/api/v1/namespaces"):
                return 404, {}
            if "watch=True" in request.path:
                return 200, {"type": "BOOKMARK", "object": {"kind": "Namespace", **namespaces[0]}}
            return 200, {"metadata": {"resourceVersion": "1"}, "items": namespaces}
        review = request.json()
        given = review["spec"]["resourceAttributes"]
        resource = given["resource"] + (f"/{given['subresource']}" if given.get("subresource") else "")
        asked = Request(given["verb"], resource, given["group"], given["namespace"], given.get("name") or "")
        return 201, review | {"status": {"allowed": rights.allow(subjects[request.headers["Authorization"]], asked)}}

    with HttpServer(answer) as server:
        yield server.url


@pytest.fixture(scope="module")
def url(api_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mlflow")
    (folder / "kubeconfig").write_text(KUBECONFIG.format(url=api_server))
    port = free_port()
    words = [
        f"--backend-store-uri=sqlite:///{folder}/mlflow.db", f"--artifacts-destination={folder}/objects",
        "--serve-artifacts", f"--port={port}", "--workers=1", "--enable-workspaces",
        "--workspace-store-uri=kubernetes://", "--app-name=kubernetes-auth",
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *words], stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)},
        )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: process.poll() is not None or answers(f"{address}/health"), seconds=180)
        assert process.poll() is None, (folder / "log").read_text()
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


class AccountClient(Client):
    """Requests of an account, which its token names."""

    def __init__(self, url: str, subject: Subject, workspace: str = "search") -> None:
        self.url, self.user = url, subject.name.replace("@", "-")
        self._headers = {"X-MLFLOW-WORKSPACE": workspace, "Authorization": f"Bearer {token(subject)}"}

    def _request(self, method: str, path: str, **content: Any) -> Answer:
        return requests.request(method, f"{self.url}/{path}", headers=self._headers, timeout=60, **content)


@pytest.fixture(scope="module")
def content(url: str) -> dict[str, str]:
    return make_content(AccountClient(url, RUNS))


@pytest.mark.parametrize("subject", [MEMBER, AUDITOR, LAUNCHER], ids=str)
def test_team_and_auditors_read_all_of_the_teams_runs(url: str, content: dict[str, str], subject: Subject) -> None:
    assert [name for name, done in reads(AccountClient(url, subject), content).items() if not done] == []


@pytest.mark.parametrize("subject", [MEMBER, AUDITOR, OTHER, OTHER_RUNS, JOBS], ids=str)
def test_accounts_but_those_of_runs_change_nothing(url: str, content: dict[str, str], subject: Subject) -> None:
    client = AccountClient(url, subject)
    assert [name for name, done in {**changes(client, content), **creates(client)}.items() if done] == []


@pytest.mark.parametrize("subject", [OTHER, OTHER_RUNS, JOBS], ids=str)
def test_another_team_reads_nothing(url: str, content: dict[str, str], subject: Subject) -> None:
    assert [name for name, done in reads(AccountClient(url, subject), content).items() if done] == []


def test_runs_change_all_of_their_own_under_names_of_another_team(url: str, content: dict[str, str]) -> None:
    client = AccountClient(url, OTHER_RUNS, "reading")
    own = make_content(client)
    assert [name for name, done in reads(client, own).items() if not done] == []
    assert [name for name, done in changes(client, own).items() if not done] == []


def test_step_reads_its_runs_by_the_token_of_its_account(
    url: str, content: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(token(RUNS) + "\n")
    monkeypatch.setattr(tracking, "ACCOUNT_TOKEN", tmp_path / "token")
    for name, value in {"MLFLOW_TRACKING_AUTH": "kubernetes-namespaced", "MLFLOW_WORKSPACE": "search"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_TOKEN", raising=False)
    assert tracking.Server(url).tags_of(content["run"]) is not None
