"""The runner in a program's own image, compiled and run here: the bounds of a local program, and no other network."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from platform_sdk.gateway.programs import Attempt, Program
from platform_sdk.gateway.sessions import Session
from tests.gateway.test_programs import HIDING as HIDING_WITH_A_WORD
from tests.gateway.test_programs import QUESTION, ended
from tests.process_watch import alive, free_port, wait_for

SOURCE = Path(__file__).parents[2] / "images/runner/runner.c"
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

HIDING = HIDING_WITH_A_WORD.replace('"hidden"', "str(os.getpid())")
"""The hidden process writes its id: the runner makes no namespace of processes."""


def landlock() -> int:
    """Return the version of the kernel's Landlock, which restricts connections from 4 on; 0 if there is none."""
    import ctypes

    return max(0, ctypes.CDLL(None).syscall(444, None, 0, 1))


RESTRICTS = landlock() >= 4


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runner") / "runner"
    flags = ["-static", "-O2", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(["gcc", *flags, str(SOURCE), "-o", str(made)], capture_output=True, text=True)
    if "cannot find -lc" in done.stderr:
        pytest.skip("the static C library is not installed")
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def runner(binary: Path) -> Iterator[str]:
    """The address of a runner; where the kernel cannot restrict the network, it is left open."""
    port = free_port()
    options = [] if RESTRICTS else ["--open-network"]
    variables = {"PATH": os.environ["PATH"], "IMAGE": "own"}
    with subprocess.Popen([binary, str(port), *options], env=variables) as process:
        wait_for(lambda: subprocess.run([binary, str(port), "--check"]).returncode == 0)
        yield f"127.0.0.1:{port}"
        process.terminate()


def python(runner: str, code: str, *arguments: str, **bounds: Any) -> Program:
    return Program((sys.executable, "-c", code, *arguments), runner=runner, **bounds)


def test_program_in_an_image_finds_its_session_and_nothing_of_this_process(
    session: Session, runner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPFORGE_TEST_SECRET", "s3cret")
    code = "import json, os, sys; print(json.dumps({'answer': [json.load(sys.stdin), dict(os.environ)]}))"
    end = ended(session, python(runner, code))
    assert (end.outcome, end.status) == ("answered", 0), end.stderr
    question, variables = json.loads(end.stdout)["answer"]
    assert question == QUESTION
    assert (variables["OPENAI_BASE_URL"], variables["OPENAI_API_KEY"]) == (session.base_url, session.token)
    assert variables["IMAGE"] == "own"
    assert "s3cret" not in variables.values()
    assert variables["HOME"] == variables["TMPDIR"]
    assert not Path(variables["HOME"]).exists(), "the temporary folder is removed"


@pytest.mark.parametrize(
    ("code", "outcome", "status", "said"),
    [
        ("import sys; sys.exit('no such model')", "error", 1, "no such model"),
        ("import os; os.kill(os.getpid(), 9)", "error", -9, ""),
        ("", "no_answer", 0, ""),
        ("import sys; sys.stderr.write('x' * 100_000 + 'end'); print('a')", "answered", 0, "end"),
        ("import os; os.close(1); os.close(2); import time; time.sleep(0.1); os._exit(3)", "error", 3, ""),
    ],
)
def test_end_in_an_image_is_the_outcome_of_a_local_program(
    code: str, outcome: str, status: int, said: str, session: Session, runner: str
) -> None:
    end = ended(session, python(runner, code))
    assert (end.outcome, end.status) == (outcome, status)
    assert end.stderr.strip().endswith(said)
    assert len(end.stderr) <= 4096


def test_command_that_is_not_in_the_image_is_an_outcome(session: Session, runner: str) -> None:
    end = ended(session, Program(("/no/such/program",), runner=runner))
    assert (end.outcome, end.status) == ("error", 127)
    assert end.stderr == "runner: /no/such/program: No such file or directory\n"


def test_runner_that_is_not_there_is_an_outcome(session: Session) -> None:
    end = ended(session, Program(("true",), runner=f"127.0.0.1:{free_port()}"))
    assert (end.outcome, end.status) == ("error", None)
    assert "refused" in end.stderr


def test_endless_output_and_unread_input_are_bounded(session: Session, runner: str) -> None:
    end = ended(session, Program(("yes",), runner=runner, output_bytes=100_000))
    assert (end.outcome, end.status) == ("limit", None)
    question = QUESTION | {"passages": ["x" * 2_000_000]}
    assert ended(session, python(runner, "print('done')"), question).outcome == "answered"


def test_folder_of_a_program_is_removed_with_what_it_made_read_only(session: Session, binary: Path) -> None:
    made = "mkdir -p $HOME/a/b && touch $HOME/a/b/c && chmod 555 $HOME/a/b $HOME/a && echo $HOME"
    # Root could empty any folder; another user has no access to pytest's folders.
    user = 65534 if os.getuid() == 0 else None
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        port, own = free_port(), shutil.copy(binary, folder)
        with subprocess.Popen([own, str(port), "--open-network"], user=user) as process:
            wait_for(lambda: subprocess.run([own, str(port), "--check"]).returncode == 0)
            end = ended(session, Program(("sh", "-c", made), runner=f"127.0.0.1:{port}"))
            process.terminate()
    assert end.status == 0, end.stderr
    assert not Path(end.stdout.strip()).exists()


@pytest.mark.parametrize(("stays", "seconds", "outcome"), [(0, 60, "answered"), (600, 2, "timeout")])
def test_processes_that_hide_in_an_image_end_with_the_program(
    stays: float, seconds: float, outcome: str, session: Session, runner: str, tmp_path: Path
) -> None:
    hidden = tmp_path / "pid"
    end = ended(session, python(runner, HIDING, str(hidden), str(stays), seconds=seconds))
    assert end.outcome == outcome, end.stderr
    wait_for(lambda: not alive(int(hidden.read_text())))


def test_program_that_kills_the_process_serving_it_ends_too(session: Session, runner: str, tmp_path: Path) -> None:
    hidden = tmp_path / "pid"
    attack = f"""
import contextlib, os, signal
with contextlib.suppress(PermissionError):
    os.kill(os.getppid(), signal.SIGKILL)
{HIDING}"""
    assert ended(session, python(runner, attack, str(hidden), "600", seconds=3)).outcome in ("timeout", "error")
    if hidden.exists() and hidden.read_text():
        wait_for(lambda: not alive(int(hidden.read_text())))
    assert ended(session, python(runner, "print('next')")).stdout == "next"


def test_stopped_attempt_ends_its_program_in_the_image(session: Session, runner: str, tmp_path: Path) -> None:
    hidden = tmp_path / "pid"
    attempt = Attempt(python(runner, HIDING, str(hidden), "600"), QUESTION, session)
    wait_for(lambda: hidden.exists() and hidden.read_text() != "")
    attempt.stop()
    wait_for(lambda: not alive(int(hidden.read_text())))


def test_sessions_run_side_by_side(session: Session, runner: str, tmp_path: Path) -> None:
    code = """
import os, pathlib, sys, time
folder, own = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / own).touch()
while len(list(folder.iterdir())) < 2:
    time.sleep(0.01)
print(own)
"""
    attempts = [Attempt(python(runner, code, str(tmp_path), name), QUESTION, session) for name in ("one", "two")]
    events: list[Any] = []
    wait_for(lambda: (event := session.inbox.take()) is not None and not events.append(event) and len(events) == 2)
    for attempt in attempts:
        attempt.stop()
    assert sorted(event.stdout for event in events) == ["one", "two"]


CONNECTIONS = """
import ctypes, json, os, socket, sys
base, other = int(os.environ["OPENAI_BASE_URL"].split(":")[2].split("/")[0]), int(sys.argv[1])

def tried(connect):
    try:
        connect()
    except OSError as error:
        return type(error).__name__
    return "connected"

def stream(port, protocol=0):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as made:
        made.connect(("127.0.0.1", port))

def fast_open():
    with socket.socket() as made:
        made.sendto(b"x", 0x20000000, ("127.0.0.1", other))

def listen():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))

kinds = {
    "gateway": lambda: stream(base), "other port": lambda: stream(other), "mptcp": lambda: stream(other, 262),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM), "unix": lambda: socket.socket(socket.AF_UNIX),
    "vsock": lambda: socket.socket(40), "fast open": fast_open, "listen": listen,
}
print(json.dumps({"answer": {name: tried(kind) for name, kind in kinds.items()}}))
"""


@pytest.mark.skipif(not RESTRICTS, reason="this kernel's Landlock restricts no connections (Linux 6.7)")
def test_program_reaches_the_gateway_and_nothing_else(session: Session, runner: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = str(other.getsockname()[1])
        end = ended(session, python(runner, CONNECTIONS, number))
        free = ended(session, Program((sys.executable, "-c", CONNECTIONS, number)))
    assert end.outcome == "answered", end.stderr
    found = json.loads(end.stdout)["answer"]
    assert found.pop("gateway") == "connected"
    assert set(found.values()) == {"PermissionError"}, found
    assert json.loads(free.stdout)["answer"]["other port"] == "connected", "a local program is not restricted"


@pytest.mark.parametrize(
    "sent", [b"x\0\0\0\0", b"a\xff\xff\xff\xff", b"?\0\0\0\1a", struct.pack(">cI", b"a", 4) + b"tru", b""]
)
def test_runner_drops_malformed_requests_and_serves_the_next(sent: bytes, session: Session, runner: str) -> None:
    host, port = runner.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(30)
        assert connection.recv(100) == b""
    assert ended(session, python(runner, "print('next')")).stdout == "next"


def test_runner_that_ends_ends_the_attempt_as_an_error(session: Session, binary: Path) -> None:
    port = free_port()
    with subprocess.Popen([binary, str(port), "--open-network"]) as process:
        wait_for(lambda: subprocess.run([binary, str(port), "--check"]).returncode == 0)

        def children(parent: int) -> list[int]:
            try:
                return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
            except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
                return []

        def commands() -> list[tuple[int, int]]:
            return [(child, command) for child in children(process.pid) for command in children(child)]

        def strike() -> None:
            wait_for(lambda: bool(commands()))  # the child that serves the check has no command
            [(child, command)] = commands()
            os.kill(child, 9)
            process.kill()
            os.kill(command, 9)

        threading.Thread(target=strike, daemon=True).start()
        began = time.monotonic()
        end = ended(session, Program(("sleep", "100"), runner=f"127.0.0.1:{port}", seconds=100))
    assert (end.outcome, "see the log of the container program" in end.stderr) == ("error", True)
    assert time.monotonic() - began < 90
