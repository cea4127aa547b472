"""The project's log: attacks on runs that only the log finds, and attacks on the log that a checkpoint finds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.tracking import manifest
from platform_sdk.tracking.log.chain import FILE_NAME, Chain, Log, LogError, NotOwnerError, Statement
from platform_sdk.tracking.log.checkpoint import Checkpoint, checkpoint_of, fault_of, read_checkpoint
from platform_sdk.tracking.log.client import open_log
from platform_sdk.tracking.verify import verify_run
from tests.http_server import HttpServer
from tests.tracking.small_run import RUN, write_small_run

OTHER = "other"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished runs; tests change copies."""
    folder = tmp_path_factory.mktemp("original")
    write_small_run(folder / RUN)
    write_small_run(folder / OTHER)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copied"))


def statement(number: int, **fields: str) -> Statement:
    digest = f"{number:064x}"
    return Statement(event="run ended", run=f"run-{number}", start=digest, head=f"7:{digest}", **fields)


def found(folder: Path, *arguments: str) -> tuple[int, dict[str, set[tuple[str, str]]]]:
    """Return the exit status of ``hopforge verify`` for a folder, and the findings by run."""
    done = CliRunner().invoke(app, ["verify", str(folder), "--json", *arguments])
    runs = json.loads(done.stdout)["runs"]
    findings = {run["run"]: {(one["kind"], one["thing"]) for one in run["findings"]} for run in runs}
    return done.exit_code, {run: things for run, things in findings.items() if things}


def test_ends_of_runs_are_recorded_once(original: Path) -> None:
    entries = Log(original / FILE_NAME).read().entries
    assert [entry.run for entry in entries] == [RUN, OTHER]
    last = manifest.read(original / RUN)[-1]
    assert (entries[0].head, entries[0].status) == (last.head, "FINISHED")
    done = CliRunner().invoke(app, ["log", "send", RUN, OTHER, "--folder", str(original)])
    assert done.exit_code == 0, done.output
    assert entries[0].position in done.output
    assert Log(original / FILE_NAME).read().entries == entries
    assert found(original) == (0, {})


def test_log_continues_after_a_checkpoint(folder: Path) -> None:
    checkpoint = folder.parent / "checkpoint.json"
    CliRunner().invoke(app, ["log", "checkpoint", "-o", str(checkpoint), "--folder", str(folder)])
    Log(folder / FILE_NAME).append(statement(3).model_copy(update={"run": "/elsewhere/third"}))
    assert found(folder, "--checkpoint", str(checkpoint)) == (0, {})
    log = folder / FILE_NAME
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:1]))
    status, findings = found(folder, "--checkpoint", str(checkpoint))
    assert (status, findings[str(log)]) == (1, {("altered", "log")})


def test_edited_log_is_named(folder: Path) -> None:
    log = folder / FILE_NAME
    log.write_text(log.read_text().replace('"status":"FINISHED"', '"status":"FAILED"', 1))
    assert found(folder) == (1, {str(log): {("altered", "log")}})


def test_run_without_an_entry_is_not_checkable_until_it_is_sent(folder: Path) -> None:
    log = folder / FILE_NAME
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    assert found(folder) == (3, {OTHER: {("not checkable", "log")}})
    assert CliRunner().invoke(app, ["log", "send", OTHER, "--folder", str(folder)]).exit_code == 0
    assert found(folder) == (0, {})


def test_run_without_a_log_is_whole_but_a_rewritten_run_is_not_detected(folder: Path) -> None:
    (folder / FILE_NAME).unlink()
    verification = verify_run(folder / RUN)
    assert (verification.findings, verification.detects) == ((), ("files", "mlflow"))


def test_unreachable_service_fails_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPFORGE_LOG", "http://127.0.0.1:9")
    write_small_run(tmp_path / RUN)
    status, findings = found(tmp_path)
    assert (status, findings) == (3, {"http://127.0.0.1:9": {("not checkable", "log")}})
    monkeypatch.delenv("HOPFORGE_LOG")
    assert CliRunner().invoke(app, ["log", "send", str(tmp_path / RUN)]).exit_code == 0
    assert found(tmp_path) == (0, {})


def test_token_is_sent_without_its_line_end_and_refused_if_no_header_can_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpServer(lambda request: (401, {})) as server:
        monkeypatch.setenv("HOPFORGE_LOG", server.url.replace("//", "//user:password@"))
        monkeypatch.setenv("HOPFORGE_LOG_TOKEN", "secret\n")
        with pytest.raises(UserError, match="refuses the token"):
            open_log(tmp_path).read()
        assert open_log(tmp_path).name == server.url.replace("//", "//***@")
        monkeypatch.setenv("HOPFORGE_LOG", server.url)
        with pytest.raises(UserError, match="refuses the token"):
            open_log(tmp_path).read()
        assert server.received[-1].headers["Authorization"] == "Bearer secret"
    for token in ("s\ncret", "sécret"):
        monkeypatch.setenv("HOPFORGE_LOG_TOKEN", token)
        with pytest.raises(UserError, match="^the token in HOPFORGE_LOG_TOKEN has characters") as error:
            open_log(tmp_path)
        assert "cret" not in str(error.value)


def test_directory_in_place_of_the_log_is_not_an_empty_log(tmp_path: Path) -> None:
    assert Log(tmp_path / FILE_NAME).read().entries == []
    with pytest.raises(IsADirectoryError):
        Log(tmp_path).read()


def test_checkpoint_is_written_to_standard_output_and_through_a_link(folder: Path) -> None:
    command = [sys.executable, "-m", "platform_sdk.cli", "log", "checkpoint", "--folder", str(folder), "-o"]
    done = subprocess.run([*command, "/dev/stdout"], capture_output=True, text=True, check=True)
    checkpoint = Checkpoint.model_validate_json(done.stdout[: done.stdout.rindex("}") + 1])
    target, link = folder / "kept.json", folder / "link.json"
    link.symlink_to(target)
    subprocess.run([*command, str(link)], capture_output=True, check=True)
    assert link.is_symlink()
    assert read_checkpoint(target).head == checkpoint.head == Log(folder / FILE_NAME).read().entries[-1].hash


def test_repeated_statement_returns_the_first_entry(tmp_path: Path) -> None:
    log = Log(tmp_path / FILE_NAME)
    first = log.append(statement(1), "a")
    log.append(statement(2), "b")
    assert log.append(statement(1), "a") == first
    with pytest.raises(NotOwnerError, match="another team"):
        log.append(statement(1, status="FAILED"), "b")
    assert Log(log.path).read().entries == log.read().entries
    assert len(log.read().entries) == 2


def test_incomplete_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    Log(path).append(statement(1))
    with path.open("ab") as stream:
        stream.write(b'{"event":"run en')
    Log(path).append(statement(2))
    chain = Log(path).read()
    assert (chain.faults, len(chain.entries)) == ([], 2)


def test_broken_log_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    for number in range(3):
        Log(path).append(statement(number))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(LogError, match="line 2 does not follow line 1"):
        Log(path).append(statement(4))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_alteration_is_found_by_a_checkpoint(data: st.DataObject) -> None:
    chain = Chain()
    lines: list[bytes] = []
    for number in range(5):
        lines.append(chain.follow(statement(number), "team").line())
        chain.extend(iter(lines[-1:]))
    checkpoint = checkpoint_of(chain.entries)
    number = data.draw(st.integers(0, 4))
    kind = data.draw(st.sampled_from(["byte", "drop", "repeat", "swap", "cut"]))
    altered = list(lines)
    if kind == "byte":
        at = data.draw(st.integers(0, len(lines[number]) - 1))
        value = data.draw(st.integers(0, 255).filter(lambda value: value != lines[number][at]))
        altered[number] = lines[number][:at] + bytes([value]) + lines[number][at + 1 :]
    elif kind == "drop":
        del altered[number]
    elif kind == "repeat":
        altered.insert(number, lines[number])
    elif kind == "swap":
        other = data.draw(st.integers(0, 4).filter(lambda value: value != number))
        altered[number], altered[other] = altered[other], altered[number]
    else:
        altered = altered[:number]
    again = Chain()
    again.extend(iter(altered))
    assert again.faults or fault_of(checkpoint, again.entries)


def test_parallel_processes_append_one_chain(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom platform_sdk.tracking.log.chain import Log, Statement\n"
        "for number in range(20):\n"
        "    digest = f'{1000 * int(sys.argv[2]) + number:064x}'\n"
        "    Log(Path(sys.argv[1])).append(Statement(event='run ended', run='r', start=digest, head='1:' + digest))\n"
    )
    path = tmp_path / FILE_NAME
    running = [subprocess.Popen([sys.executable, "-c", program, str(path), str(number)]) for number in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    chain = Log(path).read()
    assert (chain.faults, len({entry.start for entry in chain.entries}), len(chain.entries)) == ([], 60, 60)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"size": -1, "head": "", "time": ""}', b"\xff\x00"])
def test_file_that_is_no_checkpoint_is_refused(folder: Path, content: bytes) -> None:
    path = folder.parent / "checkpoint.json"
    path.write_bytes(content)
    done = CliRunner().invoke(app, ["verify", str(folder), "--checkpoint", str(path)])
    assert isinstance(done.exception, UserError)
    fetch = "fetch one with hopforge log checkpoint -o FILE"
    assert str(done.exception) == f"{path}: is no checkpoint of a log; {fetch}"
    path.unlink()
    done = CliRunner().invoke(app, ["verify", str(folder), "--checkpoint", str(path)])
    assert str(done.exception) == f"{path}: cannot be read: No such file or directory; {fetch}"
