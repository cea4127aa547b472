"""``hopforge runs`` on run directories, and on an MLflow server that answers, is down or hangs."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.tracking.journal import Journal, run_file, step_file
from platform_sdk.tracking.listing import find_run_dir, row_of, server_rows, tracking_server
from tests.http_server import HttpRequest, HttpResponse, HttpServer
from tests.sealing import sealed

WEIGHTS = "ab" * 32
STARTED = 1_700_000_000_000  # milliseconds
REPORT_LOADED = (
    "import sys\nfrom platform_sdk.cli import main\n"
    "try:\n    main()\nfinally:\n"
    "    print('loaded', *{'mlflow', 'sqlalchemy', 'psycopg2'} & set(sys.modules), file=sys.stderr)\n"
)


def hopforge_runs(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    return subprocess.run(
        [sys.executable, "-c", REPORT_LOADED, "runs", *map(str, arguments)],
        env=environment | variables, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one finished run, as its steps leave it; nothing is in MLflow."""
    run_dir = tmp_path / "runs" / "first"
    for phase, value in (("eval-start", 0.125), ("eval-final", 0.5)):
        (run_dir / phase).mkdir(parents=True)
        scores = {"phase": phase, "metrics": {"em": {"value": value}, "f1": {"value": value}}}
        (run_dir / phase / "scores.json").write_text(json.dumps(scores))
    recipe = {"pipeline": "mygo", "name": "world", "parameters": {}}
    (run_dir / "recipe.json").write_text(json.dumps(recipe))
    journal = Journal(run_file(sealed(run_dir)))
    journal.append("started", name="first", delivery="follower")
    journal.append("recipe", recipe=recipe)
    step = Journal(step_file(run_dir, "train"))
    step.append("metrics", metrics={"iteration": 2.0}, iteration=2)
    step.append("tags", tags={"hopforge.digest.weights": WEIGHTS})
    journal.append("ended", status="FINISHED")
    return run_dir.parent


@pytest.mark.parametrize("file", ["manifest.jsonl", "tracking/run.jsonl", "tracking/steps/train.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "loop", "directory"])
def test_run_with_an_unreadable_file_does_not_hide_the_others(folder: Path, file: str, kind: str) -> None:
    shutil.copytree(folder / "first", folder / "second")
    path = folder / "second" / file
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.mkdir()
    done = hopforge_runs(folder)
    assert "Traceback" not in done.stderr
    assert "first" in done.stdout
    assert str(path) in done.stderr


def test_runs_are_read_from_their_directories_without_mlflow(folder: Path) -> None:
    done = hopforge_runs(folder, "--json")
    assert (done.returncode, done.stderr.splitlines()) == (0, ["loaded"])
    [row] = json.loads(done.stdout)
    assert (row["name"], row["recipe"], row["status"], row["iterations"]) == ("first", "world", "FINISHED", 2)
    assert (row["em_start"], row["em_final"], row["weights"], row["run_id"]) == (0.125, 0.5, WEIGHTS, None)


def test_name_with_brackets_is_shown_whole(folder: Path) -> None:
    (folder / "first").rename(folder / "my run [lora]")
    assert "my run [lora]" in hopforge_runs(folder, COLUMNS="200").stdout


def test_run_whose_process_died_is_listed_as_killed(folder: Path) -> None:
    Journal(run_file(folder / "first")).append("started", name="first", delivery="follower")
    assert row_of(folder / "first").status == "KILLED"


def test_listing_a_killed_run_creates_no_file(folder: Path) -> None:
    Journal(run_file(folder / "first")).append("started", name="first", delivery="follower")
    before = sorted(folder.rglob("*"))
    assert row_of(folder / "first").status == "KILLED"
    assert sorted(folder.rglob("*")) == before


def test_run_is_found_by_its_id_although_the_record_of_another_is_damaged(folder: Path) -> None:
    shutil.copytree(folder / "first", folder / "a damaged one")
    (folder / "a damaged one/tracking/mlflow.json").write_text("{")
    (folder / "first/tracking/mlflow.json").write_text(json.dumps({"run_id": "0123"}))
    assert find_run_dir("0123", folder) == folder / "first"


def test_damaged_run_is_reported_and_the_others_are_listed(folder: Path) -> None:
    (folder / "second" / "tracking").mkdir(parents=True)
    run_file(folder / "second").write_text("no journal\n")
    done = hopforge_runs(folder, "--json")
    assert [row["name"] for row in json.loads(done.stdout)] == ["first"]
    assert "warning: run second is not listed" in done.stderr


def test_run_with_a_score_that_is_no_number_is_reported(folder: Path) -> None:
    path = folder / "first" / "eval-final" / "scores.json"
    path.write_text(json.dumps({"phase": "eval-final", "metrics": {"em": {"value": "high"}}}))
    done = hopforge_runs(folder, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    assert f"warning: run first is not listed: {path}: contains no scores" in done.stderr


@pytest.mark.parametrize("uri", ["sqlite:////{tmp}/absent/mlflow.db", "postgresql://u:p@127.0.0.1:1/mlflow"])
def test_database_is_neither_opened_nor_created(folder: Path, tmp_path: Path, uri: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = hopforge_runs(folder, "--json", MLFLOW_TRACKING_URI=uri.format(tmp=tmp_path))
    assert (done.returncode, done.stderr.splitlines()) == (0, ["loaded"])
    assert [row["name"] for row in json.loads(done.stdout)] == ["first"]
    assert {path.name for path in set(tmp_path.rglob("*")).difference(before)} <= {"digests.json", "verified.json"}


def test_server_that_is_down_is_reported_in_one_sentence() -> None:
    done = hopforge_runs(MLFLOW_TRACKING_URI="http://127.0.0.1:1")
    assert done.returncode == 2
    [message, loaded] = done.stderr.splitlines()
    assert message.startswith("error: MLflow server http://127.0.0.1:1: ")
    assert "check MLFLOW_TRACKING_URI" in message
    assert loaded == "loaded"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("MLFLOW_TRACKING_URI", "http://[::1", r"Invalid IPv6 URL; check MLFLOW_TRACKING_URI"),
        ("MLFLOW_TRACKING_URI", "http://127.0.0.1:1/mlflöw", "the address or the token has characters that HTTP does"),
        ("MLFLOW_TRACKING_TOKEN", "sec\nret", "the address or the token has characters that HTTP does"),
        ("MLFLOW_TRACKING_SERVER_CERT_PATH", "/absent.pem", "^MLFLOW_TRACKING_SERVER_CERT_PATH: /absent.pem: No such"),
    ],
)
def test_setting_of_the_server_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://127.0.0.1:1")
    monkeypatch.setenv(variable, value)
    with pytest.raises(UserError, match=message) as error:
        find_run_dir("0123", Path("absent"))
    assert "sec" not in str(error.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [({"status": "ok"}, "the answer is not MLflow's"), ("[" * 100_000, "is not JSON"), ("\xe9", "is not JSON")],
)
def test_server_that_is_not_mlflow_is_reported(monkeypatch: pytest.MonkeyPatch, answer: object, message: str) -> None:
    with HttpServer(lambda request: (200, answer)) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
        with pytest.raises(UserError, match=f"^MLflow server {server.url}: .*{message}; check MLFLOW_TRACKING_URI$"):
            find_run_dir("0123", Path("absent"))


def test_server_that_never_answers_is_reported_within_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        server = tracking_server()
        assert server is not None
        began = time.monotonic()
        with pytest.raises(UserError, match="no answer within 4 s; check MLFLOW_TRACKING_URI"):
            server_rows(server)
        assert time.monotonic() - began < 5


class Mlflow(HttpServer):
    """MLflow's REST API with two pages of experiments and one run, as MLflow 3.17 answers."""

    def answer(self, request: HttpRequest) -> HttpResponse:
        if request.path.endswith("experiments/search"):
            if "page_token" in request.json():
                return 200, {"experiments": [{"experiment_id": "1"}]}
            return 200, {"experiments": [{"experiment_id": "0"}], "next_page_token": "more"}
        metrics = {"iteration": 2, "eval-start/em": 0.125, "eval-final/em": 0.5, "eval-final/f1": "NaN"}
        tags = {"hopforge.run_dir": "/runs/first", "weights": WEIGHTS}
        run = {
            "info": {"run_id": "f" * 32, "run_name": "first", "status": "FINISHED", "start_time": STARTED},
            "data": {
                "metrics": [{"key": name, "value": value} for name, value in metrics.items()],
                "params": [{"key": "name", "value": "world"}],
                "tags": [{"key": name, "value": value} for name, value in tags.items()],
            },
        }  # fmt: skip
        return 200, {"runs": [run]}


def test_runs_of_a_server_are_asked_for_with_its_credentials() -> None:
    with Mlflow() as server:
        done = hopforge_runs("--json", MLFLOW_TRACKING_URI=f"http://me:secret@127.0.0.1:{server.server_port}")
    assert (done.returncode, done.stderr.splitlines()) == (0, ["loaded"])
    [row] = json.loads(done.stdout)
    assert (row["name"], row["recipe"], row["iterations"], row["run_dir"]) == ("first", "world", 2, "/runs/first")
    assert (row["em_start"], row["em_final"], row["f1_start"]) == (0.125, 0.5, None)
    assert math.isnan(row["f1_final"]), "MLflow's REST API has NaN as a text"
    assert (row["started"], row["weights"]) == ("2023-11-14T22:13:20+00:00", WEIGHTS)
    search = server.received[-1]
    assert (search.path, search.json()["experiment_ids"]) == ("/api/2.0/mlflow/runs/search", ["0", "1"])
    assert search.headers["Authorization"] == "Basic bWU6c2VjcmV0"
