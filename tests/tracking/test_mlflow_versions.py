"""MLflow servers of other versions, by their recorded answers, and a server of the installed version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.tracking.server import Server
from platform_sdk.tracking.store_errors import reason
from platform_sdk.tracking.stored import Store
from tests.http_server import HttpRequest, HttpResponse, HttpServer
from tests.tracking.mlflow_process import plain_mlflow
from tests.tracking.small_run import RUN, write_small_run

COMMANDS = (["verify"], ["audit"], ["lineage"], ["approve", "--note", "Read."])
NO_RUN = json.dumps({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Run with id=0 not found"})
NO_PAGE = """<!doctype html>
<html lang=en>
<title>404 Not Found</title>
<h1>Not Found</h1>
<p>The requested URL was not found on the server. If you entered the URL manually please check your spelling.</p>
"""


@pytest.fixture
def uri(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that answers as one of MLflow's version ``request.param`` without runs."""

    def answer(asked: HttpRequest) -> HttpResponse:
        path = asked.path.partition("?")[0]
        if (asked.method, path) == ("GET", "/version"):
            return (200, request.param) if request.param else (404, NO_PAGE)
        if (asked.method, path) == ("GET", "/api/2.0/mlflow-artifacts/artifacts"):
            return 200, {"files": []}
        return 404, NO_RUN if asked.method == "GET" and path.endswith("/runs/get") else NO_PAGE

    with HttpServer(answer) as server:
        yield server.url


@pytest.mark.parametrize("uri", ["2.22.5", "3.0.1", "3.4.0"], indirect=True)
def test_server_that_is_too_old_is_named_in_one_sentence(
    uri: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    verified = CliRunner().invoke(app, ["verify", str(folder / RUN), "--json"])
    [finding] = json.loads(verified.stdout)["runs"][0]["findings"]
    assert (verified.exit_code, finding["kind"], finding["thing"]) == (3, "not checkable", f"MLflow store {uri}")
    sentence = finding["found"]
    assert sentence.startswith(f"MLflow server {uri}: its version is ")
    assert sentence.endswith("; use a server of MLflow 3.10 or later")
    for command in COMMANDS:
        done = CliRunner().invoke(app, [command[0], "small@small", "--folder", str(folder), *command[1:]])
        assert isinstance(done.exception, UserError), command
        assert str(done.exception) == sentence


@pytest.mark.parametrize("uri", ["3.10.1", "3.18.0.dev0", "4.0", "unknown", ""], indirect=True)
def test_server_of_a_later_or_unknown_version_is_used(uri: str) -> None:
    Server(uri).check()


@pytest.mark.parametrize("uri", ["3.18.0"], indirect=True)
def test_artifact_folder_without_files_is_an_empty_folder(uri: str) -> None:
    with Store(uri) as store:
        assert list(store.folder("mlflow-artifacts:/1/a-run/artifacts").iterdir()) == []


SEARCH = "/api/2.0/mlflow/logged-models/search"
REFUSED = f"API request to endpoint {SEARCH} failed with error code {{}} != 200. Response body: "


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            ValueError(REFUSED.format(404) + f"'{NO_PAGE}'"),
            f"HTTP 404 for {SEARCH}, which this server does not have; use a server of MLflow 3.10 or later",
        ),
        (ValueError(REFUSED.format(502) + "'<html>\n<p>Bad gateway'"), f"HTTP 502 for {SEARCH}"),
        (
            NotImplementedError("log_spans is not supported: MLflow server version 3.0.1 is less than 3.4"),
            "log_spans is not supported: MLflow server version 3.0.1 is less than 3.4; use a server of MLflow 3.10 or "
            "later",
        ),
        (
            ValueError("The following failures occurred while downloading:\n##### File a #####\nHTTP 500"),
            "The following failures occurred while downloading: ##### File a ##### HTTP 500",
        ),
    ],
)  # fmt: skip
def test_error_of_mlflow_is_one_line_with_its_cause(error: Exception, sentence: str) -> None:
    assert reason(error) == sentence


@pytest.mark.parametrize("uri", ["2.22.5"], indirect=True)
def test_run_is_not_delivered_to_a_server_that_is_too_old_with_one_sentence(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UserError) as caught:
        write_small_run(tmp_path / RUN)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"MLflow store {uri}: HTTP 404 for /api/2.0/mlflow/")


@pytest.mark.parametrize("content", [None, b"not a database" * 100])
def test_store_that_is_missing_or_damaged_is_named_in_one_sentence(
    content: bytes | None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.db"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
    cause = "no such file; check MLFLOW_TRACKING_URI" if content is None else "(sqlite3.DatabaseError) file is not a"
    for command in COMMANDS:
        done = CliRunner().invoke(app, [command[0], "small@small", "--folder", str(folder), *command[1:]])
        assert isinstance(done.exception, UserError), command
        assert str(done.exception).startswith(f"MLflow store sqlite:///{path}: {cause}")
        assert "\n" not in str(done.exception)
    done = CliRunner().invoke(app, ["verify", str(folder / RUN), "--record"])
    assert isinstance(done.exception, UserError)
    assert path.exists() == (content is not None)


@pytest.mark.slow
def test_run_on_a_server_is_whole_and_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with plain_mlflow(tmp_path) as uri:
        Server(uri).check()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        write_small_run(tmp_path / "runs" / RUN)
        for arguments in (
            ["verify", str(tmp_path / "runs")],
            ["approve", "small@small", "--note", "Read.", "--folder", str(tmp_path / "runs")],
            ["verify", "small@approved", "--folder", str(tmp_path / "runs")],
        ):
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, done.output + str(done.exception)
