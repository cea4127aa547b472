"""A password in MLFLOW_TRACKING_URI or in a server's URL is neither stored in the run directory nor shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from platform_sdk.cli.progress import print_outcome
from platform_sdk.config.errors import UserError
from platform_sdk.config.judge import JudgeSpec
from platform_sdk.evaluation.judge import Judge
from platform_sdk.execution.runs import Outcome
from platform_sdk.retrieval.remote import RemoteRetriever
from platform_sdk.tracking import finish_run, start_run, step_run
from platform_sdk.tracking.listing import server_rows, tracking_server
from platform_sdk.tracking.log.client import RemoteLog
from platform_sdk.tracking.server import Server
from tests.http_server import HttpServer

SECRET = "s3cr3t-t0ken"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address, with a password, of a server that refuses everything, and quotes the URL that a proxy might."""
    with HttpServer(lambda _: (400, f"upstream http://someone:{SECRET}@host/v1 refused")) as server:
        yield f"http://someone:{SECRET}@127.0.0.1:{server.server_port}"


def test_password_of_the_mlflow_server_is_stored_nowhere(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    info = start_run(run_dir, {"pipeline": "p", "name": "n", "parameters": {}}, follow=False)
    with pytest.raises(RuntimeError), step_run(run_dir, "train") as step:
        step.log_dataset("questions", digest="d", source=f"{url}/q.json", context="training")
        raise RuntimeError(f"{url} is away")
    with pytest.raises(UserError, match="MLflow store") as caught:
        finish_run(run_dir, "FAILED")
    server = tracking_server()
    assert server is not None
    with pytest.raises(UserError, match="MLflow server") as listing:
        server_rows(server)
    print_outcome(Outcome(str(run_dir), [], {}, None, info.tracking_uri))
    shown = "".join(capfd.readouterr()) + str(caught.value) + str(listing.value)
    assert "http://***@127.0.0.1" in shown
    stored = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    assert any(b"http://***@127.0.0.1" in content for content in stored.values())
    assert SECRET not in shown
    assert [path for path, content in stored.items() if SECRET.encode() in content] == []


@pytest.mark.parametrize("password", [f"{SECRET}/x", f"{SECRET}#x", f"{SECRET}?x", f"{SECRET}\u2100"])
def test_part_of_a_password_with_unescaped_characters_is_not_in_the_errors(password: str) -> None:
    address = f"http://someone:{password}@127.0.0.1:9"
    with pytest.raises(UserError, match="in a password, write / as %2F") as mlflow:
        Server(address).check()
    with pytest.raises(UserError, match="the log service cannot be reached") as log:
        RemoteLog(address, "").checkpoint()
    assert SECRET not in f"{mlflow.value}{log.value}"


def test_credentials_of_mlflow_are_not_sent_to_another_host_on_a_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", SECRET)
    with HttpServer(lambda _: (200, {})) as login:
        moved = {"Location": login.url.replace("127.0.0.1", "localhost")}
        with HttpServer(lambda _: (302, "", moved)) as server:
            Server(server.url).check()
    assert server.received[0].headers["Authorization"] == f"Bearer {SECRET}"
    assert {request.headers["Authorization"] for request in login.received} == {None}


def test_credentials_of_mlflow_follow_a_redirect_on_its_own_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", SECRET)
    moved = {"Location": "/new"}
    with HttpServer(lambda request: (200, {}) if request.path.startswith("/new") else (302, "", moved)) as server:
        Server(server.url).check()
    assert {request.headers["Authorization"] for request in server.received} == {f"Bearer {SECRET}"}


def test_password_of_a_server_is_not_in_its_errors(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UserError, match="refused") as retriever:
        RemoteRetriever(url)
    judge = JudgeSpec.model_construct(**{**JudgeSpec(url="http://host", model="m").model_dump(), "url": url})
    with Judge(judge.model_copy(update={"cache": str(tmp_path)})) as asked, pytest.raises(UserError) as judged:
        asked.verdicts([("q", ["a"], "r")])
    assert SECRET not in str(retriever.value) + str(judged.value) + caplog.text
    assert "***@" in str(retriever.value)
    assert "***@" in str(judged.value)
