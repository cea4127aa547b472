"""``hopforge serve log`` as a process: teams, bounds, kills under load, and checkpoints that openssl verifies."""

from __future__ import annotations

import base64
import json
import random
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.tracking.approvals import approve
from platform_sdk.tracking.log.chain import Log
from platform_sdk.tracking.verify import verify_run, verify_target
from platform_sdk.tracking.verify_files import FileCheck
from platform_sdk.tracking.verify_log import LogCheck
from tests.authority import openssl
from tests.log_service.service import TEAMS, Service, statement
from tests.tracking.small_run import write_small_run


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path, "--burst", "1000000")
    yield running
    running.kill()


def test_entries_are_appended_once_and_read_in_pages(service: Service) -> None:
    first = service.post(statement(1))
    assert first.status_code == 200
    assert service.post(statement(1)).content == first.content
    second = service.post(statement(2), "red")
    assert [entry["team"] for entry in (first.json(), second.json())] == ["blue", "red"]
    assert service.log.read_bytes() == first.content + b"\n" + second.content + b"\n"
    assert service.get("/v1/entries").content == service.log.read_bytes()
    assert service.get("/v1/entries?start=1&count=1").content == second.content + b"\n"
    assert service.get("/v1/entries?start=2").content == b""


def test_requests_out_of_bounds_are_refused_and_leave_no_entry(service: Service) -> None:
    service.post(statement(1))
    before = service.log.read_bytes()
    for expected, code, content, team in (
        (401, "unauthorized", statement(2), "green"),
        (403, "other_team", statement(1, status="FAILED"), "red"),
        (403, "other_team", statement(1, event="run removed", who="eve", note="Gone."), "red"),
        (422, "invalid_entry", {"event": "run ended"}, "blue"),
        (422, "invalid_entry", statement(2, team="red"), "blue"),
        (422, "invalid_entry", statement(2, note="x" * 3000), "blue"),
        (413, "body_too_large", statement(2, note="x" * 20_000), "blue"),
    ):
        answer = service.post(content, team)
        assert (answer.status_code, answer.json()["error"]["code"]) == (expected, code)
    assert service.get("/v1/entries", "green").status_code == 401
    assert service.get("/v1/checkpoint", "green").status_code == 401
    assert service.get("/v1/entries?start=-1").status_code == 422
    assert httpx.delete(f"{service.url}/v1/entries").status_code == 405
    assert service.log.read_bytes() == before


def test_rate_of_a_team_is_bounded_and_other_teams_are_not_affected(tmp_path: Path) -> None:
    service = Service(tmp_path, "--burst", "3", "--rate", "0.01")
    try:
        statuses = [service.post(statement(number)).status_code for number in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        assert int(service.post(statement(6)).headers["Retry-After"]) > 50
        assert service.post(statement(7), "red").status_code == 200
    finally:
        service.kill()


def test_checkpoint_is_verified_by_openssl(service: Service, tmp_path: Path) -> None:
    service.post(statement(1))
    checkpoint = service.get("/v1/checkpoint").json()
    entry = json.loads(service.log.read_bytes())
    assert (checkpoint["size"], checkpoint["head"]) == (1, entry["hash"])
    files = {name: tmp_path / name for name in ("content", "signature", "public.pem")}
    files["signature"].write_bytes(base64.b64decode(checkpoint["signature"]))
    openssl("ec", "-in", service.key, "-pubout", "-out", files["public.pem"])
    assert files["public.pem"].read_text() == checkpoint["key"]
    for size, expected in ((1, 0), (2, 1)):
        signed = {"head": checkpoint["head"], "size": size, "time": checkpoint["time"]}
        files["content"].write_text(json.dumps(signed, separators=(",", ":")))
        command = ["openssl", "dgst", "-sha256", "-verify", str(files["public.pem"]), "-signature",
                   str(files["signature"]), str(files["content"])]  # fmt: skip
        assert subprocess.run(command, capture_output=True).returncode == expected


def test_run_sends_its_end_and_is_verified_with_a_signed_checkpoint(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPFORGE_LOG", service.url)
    monkeypatch.setenv("HOPFORGE_LOG_TOKEN", "token-red")
    run_dir = tmp_path / "runs/small"
    write_small_run(run_dir)
    [entry] = Log(service.log).read().entries
    assert (entry.team, entry.run) == ("red", str(run_dir))
    assert verify_run(run_dir).detects == ("files", "mlflow", "rewritten")
    checkpoint = tmp_path / "checkpoint.json"
    done = CliRunner().invoke(app, ["log", "checkpoint", "-o", str(checkpoint)])
    assert done.exit_code == 0, done.output
    command = ["verify", str(run_dir), "--checkpoint", str(checkpoint)]
    assert CliRunner().invoke(app, command).exit_code == 0
    forged = json.loads(checkpoint.read_text()) | {"size": 0, "head": "0" * 64}
    checkpoint.write_text(json.dumps(forged))
    assert "signature does not match" in str(CliRunner().invoke(app, command).exception)
    monkeypatch.setenv("HOPFORGE_LOG_TOKEN", "wrong")
    assert CliRunner().invoke(app, ["verify", str(run_dir)]).exit_code == 3


def test_another_teams_run_of_the_same_path_is_another_run(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each team has its own volume, and the same path on it."""
    run_dir = tmp_path / "runs/small"
    write_small_run(run_dir)
    for number, name in enumerate(("small", "gone")):
        service.post(statement(number, run=str(tmp_path / "runs" / name)), "blue")
    monkeypatch.setenv("HOPFORGE_LOG", service.url)
    for team, found, missing in (("red", "not checkable", []), ("blue", "altered", ["gone"])):
        monkeypatch.setenv("HOPFORGE_LOG_TOKEN", f"token-{team}")
        log = LogCheck(tmp_path / "runs")
        assert [finding.kind for finding in log.check_run(FileCheck(run_dir), [])[0]] == [found]
        assert [verification.run for verification in log.absent([run_dir])] == missing


def test_another_teams_model_of_the_same_name_is_another_model(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPFORGE_LOG", service.url)
    monkeypatch.setenv("HOPFORGE_LOG_TOKEN", "token-red")
    folder = tmp_path / "runs"
    write_small_run(folder / "small")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    approve("small/1", folder, "Read.")
    blue = {"model": "small", "version": "1", "weights": "e" * 64, "who": "bob", "note": "Read."}
    service.post(statement(5, event="model approved", **blue), "blue")
    with sqlite3.connect(folder / "mlflow.db") as store:
        store.execute("delete from registered_model_aliases where alias = 'approved'")
    store.close()
    things = [finding.thing for one in verify_target(str(folder), folder) for finding in one.findings]
    assert things == ["MLflow model small: alias approved"]
    service.post(statement(5, event="approval withdrawn", **blue), "blue")
    assert approve("small/1", folder, "Wrong split.", withdraw=True).team == "red"


def write(service: Service, writer: int, stop: threading.Event, acknowledged: dict[str, bytes]) -> None:
    """Send entries until the end; repeat each until it is acknowledged."""
    number = 0
    while not stop.is_set():
        content = statement(1_000_000 * writer + number)
        while True:
            try:
                answer = service.post(content, TEAMS[writer % 2])
            except httpx.HTTPError:
                time.sleep(0.02)
                continue
            assert answer.status_code == 200, answer.text
            acknowledged[content["start"]] = answer.content
            break
        number += 1


def kill_under_load(service: Service, kills: int) -> None:
    acknowledged: dict[str, bytes] = {}
    stop = threading.Event()
    writers = [threading.Thread(target=write, args=(service, number, stop, acknowledged)) for number in range(8)]
    for writer in writers:
        writer.start()
    drawn = random.Random(7)
    for _ in range(kills):
        time.sleep(drawn.uniform(0.2, 0.8))
        service.kill()
        service.start()
    stop.set()
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive()
    chain = Log(service.log).read()
    assert chain.faults == []
    lines = service.log.read_bytes().splitlines()
    assert len(lines) == len({entry.start for entry in chain.entries}) == len(chain.entries)
    assert len(acknowledged) >= kills
    assert acknowledged.items() <= {entry.start: entry.line() for entry in chain.entries}.items()


def test_acknowledged_entries_survive_kills_under_load(service: Service) -> None:
    kill_under_load(service, 1)


@pytest.mark.slow
def test_acknowledged_entries_survive_50_kills_under_load(service: Service) -> None:
    kill_under_load(service, 50)


def test_full_disk_refuses_entries_loses_none_and_fails_no_run(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limit the size of the process's files, which fails in the middle of a line, as on a full disk."""
    first = service.post(statement(1))
    limit = ["prlimit", "--pid", str(service.process.pid)]
    subprocess.run([*limit, f"--fsize={len(first.content) + 100}:unlimited"], check=True)
    refused = service.post(statement(2))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "log_unwritable")
    assert service.get("/v1/entries").content == first.content + b"\n"
    assert service.log.stat().st_size > len(first.content) + 1, "a part of the line was written"
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("HOPFORGE_LOG", service.url)
    monkeypatch.setenv("HOPFORGE_LOG_TOKEN", "token-red")
    run_dir = tmp_path / "runs/small"
    assert write_small_run(run_dir), "the run ends"
    subprocess.run([*limit, "--fsize=unlimited:unlimited"], check=True)
    assert service.post(statement(2)).status_code == 200
    assert CliRunner().invoke(app, ["log", "send", str(run_dir)]).exit_code == 0
    chain = Log(service.log).read()
    assert (chain.faults, [entry.run for entry in chain.entries]) == ([], ["/runs/1", "/runs/2", str(run_dir)])


def test_broken_log_is_not_served(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.post(statement(1))
    service.post(statement(2))
    service.kill()
    lines = service.log.read_bytes().splitlines(keepends=True)
    service.log.write_bytes(lines[1])
    with pytest.raises(AssertionError, match="does not follow"):
        service.start()
