"""A program runs within its bounds, and ends with everything that it started, whatever it does."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from platform_sdk.gateway import programs
from platform_sdk.gateway.events import Ended
from platform_sdk.gateway.isolation import available
from platform_sdk.gateway.programs import Attempt, Program, function_command
from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Bounds, Session
from platform_sdk.processes.commands import fault_of, located
from tests.http_server import HttpRequest, HttpResponse, HttpServer
from tests.process_watch import wait_for

QUESTION = {"id": "q", "question": "Who directed Amberfall?"}


def ended(session: Session, program: Program, question: dict[str, Any] = QUESTION) -> Ended:
    attempt = Attempt(program, question, session)
    events: list[Any] = []
    wait_for(lambda: (event := session.inbox.take()) is not None and not events.append(event))
    attempt.stop()
    [end] = events
    assert isinstance(end, Ended)
    return end


def holders(token: str) -> list[str]:
    """Return the processes with a session's token in their environment: the program's, in whatever namespace."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if token.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def python(code: str, **bounds: Any) -> Program:
    return Program((sys.executable, "-c", code), **bounds)


def test_program_reads_the_question_and_finds_its_session(session: Session) -> None:
    code = (
        "import json, os, sys; q = json.load(sys.stdin); print('working'); "
        "print(json.dumps({'answer': [q, os.environ['OPENAI_BASE_URL'], os.environ['OPENAI_API_KEY']]}))"
    )
    end = ended(session, python(code))
    assert (end.outcome, end.status) == ("answered", 0)
    assert json.loads(end.stdout)["answer"] == [QUESTION, session.base_url, session.token]


@pytest.mark.parametrize(
    ("code", "outcome", "status", "said"),
    [
        ("import sys; sys.exit('no such model')", "error", 1, "no such model"),
        ("import os; os.kill(os.getpid(), 9)", "error", None, ""),
        ("", "no_answer", 0, ""),
        ("print('  ')", "no_answer", 0, ""),
        ("import sys; sys.stderr.write('x' * 100_000 + 'end'); print('a')", "answered", 0, "end"),
    ],
)
def test_end_of_a_program_is_an_outcome(
    code: str, outcome: str, status: int | None, said: str, session: Session
) -> None:
    end = ended(session, python(code))
    assert end.outcome == outcome
    assert status is None or end.status == status
    assert end.stderr.strip().endswith(said)
    assert len(end.stderr) <= 4096


def test_program_that_is_not_there_is_an_outcome(session: Session) -> None:
    assert ended(session, Program(("/no/such/program",))).outcome == "error"


def test_environment_holds_named_variables_only(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPFORGE_TEST_SECRET", "s3cret")
    monkeypatch.setenv("HOPFORGE_TEST_NAMED", "given")
    code = "import json, os; print(json.dumps({'answer': dict(os.environ)}))"
    found = json.loads(ended(session, python(code, environment=("HOPFORGE_TEST_NAMED",))).stdout)["answer"]
    assert found["HOPFORGE_TEST_NAMED"] == "given"
    assert "s3cret" not in found.values()
    assert found["HOME"] == found["TMPDIR"] != os.environ.get("HOME")
    assert not Path(found["HOME"]).exists(), "the temporary folder is removed"


def test_program_cannot_read_the_environment_of_its_parents(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    if not available():
        pytest.skip("the kernel does not let this user make namespaces")
    monkeypatch.setenv("HOPFORGE_TEST_SECRET", "s3cret")
    code = """
import glob, json, os
def read(path):
    try:
        return open(path, "rb").read().decode(errors="replace")
    except OSError:
        return ""
found = [read(path) for path in glob.glob("/proc/[0-9]*/environ")]
print(json.dumps({"answer": [len(found), os.getppid(), any("HOPFORGE_TEST_SECRET" in text for text in found)]}))
"""
    holding = subprocess.Popen(["sleep", "60"], env={**os.environ})
    try:
        end = ended(session, python(code))
        assert b"s3cret" in Path(f"/proc/{holding.pid}/environ").read_bytes()
    finally:
        holding.kill()
        holding.wait()
    processes, parent, leaked = json.loads(end.stdout)["answer"]
    assert (processes, parent, leaked) == (2, 1, False), "it sees its guard and itself"


def test_large_question_that_is_never_read_blocks_nothing(session: Session) -> None:
    question = QUESTION | {"passages": ["x" * 2_000_000]}
    assert ended(session, python("print('done')"), question).outcome == "answered"


def test_endless_output_ends_the_program(session: Session) -> None:
    began = time.monotonic()
    end = ended(session, Program(("yes",), output_bytes=100_000))
    assert (end.outcome, end.status) == ("limit", None)
    assert time.monotonic() - began < 30


HIDING = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write("hidden")
        time.sleep(600)
    os._exit(0)
while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read()):
    time.sleep(0.01)
print("done", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(("stays", "seconds", "outcome"), [(0, 60, "answered"), (600, 2, "timeout")])
def test_processes_that_hide_end_with_the_program(
    stays: float, seconds: float, outcome: str, session: Session, tmp_path: Path
) -> None:
    hidden = tmp_path / "pid"
    end = ended(session, Program((sys.executable, "-c", HIDING, str(hidden), str(stays)), seconds=seconds))
    assert end.outcome == outcome
    wait_for(lambda: not holders(session.token))


@pytest.mark.parametrize("signal", ["KILL", "STOP"])
def test_program_that_attacks_its_guard_ends_too(
    signal: str, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "GUARD_SECONDS", 1.0)
    hidden = tmp_path / "pid"
    attack = f"import os, signal\nos.kill(os.getppid(), signal.SIG{signal})\n{HIDING}"
    program = Program((sys.executable, "-c", attack, str(hidden), "600"), seconds=3)
    assert ended(session, program).outcome in ("timeout", "error")
    wait_for(lambda: not holders(session.token))


def test_stopped_attempt_ends_its_program(session: Session, tmp_path: Path) -> None:
    hidden = tmp_path / "pid"
    attempt = Attempt(Program((sys.executable, "-c", HIDING, str(hidden), "600")), QUESTION, session)
    wait_for(lambda: hidden.exists() and hidden.read_text() != "")
    assert holders(session.token)
    attempt.stop()
    assert not holders(session.token)


def test_function_is_called_with_the_question(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_agents.py").write_text(
        "def plain(question):\n    return question['question'].upper()\n"
        "async def waits(question):\n    return {'answer': question['id'], 'measures': {'steps': 2}}\n"
        "def silent(question):\n    pass\n"
        "def dots(question):\n    print('.', end='')\n    return 'Ida \\ud800'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name, wanted in (
        ("plain", {"answer": "WHO DIRECTED AMBERFALL?"}),
        ("waits", {"answer": "q", "measures": {"steps": 2}}),
        ("silent", {"answer": None}),
        ("dots", {"answer": "Ida \ud800"}),
    ):
        end = ended(session, Program(function_command(f"own_agents:{name}")))
        assert (end.outcome, json.loads(end.stdout)) == ("answered", wanted), end.stderr


@pytest.mark.parametrize(
    ("status", "body", "delay", "outcome"),
    [(200, b'{"answer": "Ida"}', 0, "answered"), (500, b"boom", 0, "error"), (200, b"", 0, "no_answer"),
     (200, b"x" * 5000, 0, "limit"), (200, b"late", 5, "timeout")],
)  # fmt: skip
def test_service_is_asked_over_http(status: int, body: bytes, delay: float, outcome: str, session: Session) -> None:
    def answer(_: HttpRequest) -> HttpResponse:
        time.sleep(delay)
        return status, body

    with HttpServer(answer) as server:
        end = ended(session, Program(url=f"{server.url}/answer", seconds=2, output_bytes=4000))
    assert end.outcome == outcome
    [request] = server.received
    assert (request.method, request.path) == ("POST", "/answer")
    assert request.json()["question"] == QUESTION["question"]
    assert request.json()["openai_base_url"] == session.base_url


def test_service_that_answers_slowly_bit_by_bit_ends_at_the_time_of_an_attempt(session: Session) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection = server.accept()[0]
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            for part in [b"HTTP/1.1 200 OK\r\nX: ", *[b"a"] * 20, b"\r\nContent-Length: 0\r\n\r\n"]:
                connection.sendall(part)
                time.sleep(0.05)

    thread = threading.Thread(target=drip)
    thread.start()
    end = ended(session, Program(url=f"http://127.0.0.1:{server.getsockname()[1]}/", seconds=0.3))
    thread.join()
    server.close()
    assert (end.outcome, end.stderr) == ("timeout", "no whole response after 0.3 seconds")


def test_service_that_fails_after_it_reached_a_bound_has_reached_a_limit(hermes: Gateway) -> None:
    session = hermes.open(seed=1, name="Q#0", bounds=Bounds(calls=0))
    asked: list[httpx.Response] = []

    def answer(request: HttpRequest) -> HttpResponse:
        body = {"model": "m", "messages": [{"role": "user", "content": "Who?"}]}
        asked.append(httpx.post(f"{request.json()['openai_base_url']}/chat/completions", json=body, trust_env=False))
        return 500, b"no more calls"

    with HttpServer(answer) as server:
        end = ended(session, Program(url=f"{server.url}/answer"))
    session.close()
    assert [response.status_code for response in asked] == [403]
    assert (end.outcome, end.stderr) == ("limit", "HTTP 500: no more calls")


def test_service_that_is_not_there_is_an_outcome(session: Session) -> None:
    assert ended(session, Program(url="http://127.0.0.1:9/answer")).outcome == "error"


def test_command_is_checked_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "agent.sh"
    script.write_text("#!/bin/sh\necho ran > ran\n")
    assert fault_of(["./agent.sh"]) == "./agent.sh: is not executable; run chmod +x"
    script.chmod(0o755)
    assert fault_of(["./agent.sh"]) is None
    assert fault_of(["python", "agents/none.py"]) == "agents/none.py: there is no such file; check the path"
    assert fault_of(["python", "-u", "none.py"]) == "none.py: there is no such file; check the path"
    assert fault_of(["no-such"]) == "no-such: there is no such program; install it, or give its path"
    assert fault_of(["./no-such"]) == "./no-such: there is no such program; check the path"
    assert not (tmp_path / "ran").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home/agent.py").touch()
    shipped = tmp_path / "elsewhere/sub"
    shipped.mkdir(parents=True)
    (shipped / "agent.py").touch()
    assert located(["python", "sub/agent.py"], shipped.parent) == ("python", str(shipped / "agent.py"))
    assert located(["python", "home/agent.py"], shipped.parent) == ("python", "home/agent.py")


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "cd agents && python ./main.py"], ["bash", "-lc", "exec ./main.py"], ["python", "-m", "a/b.py"],
        ["python", "agent.sh", "http://host/search.js"], ["python", "-c", "print('" + "x" * 9999 + "/y.py')"],
        ["env", "A=/b.py", "python"],
    ],
)  # fmt: skip
def test_command_whose_arguments_are_no_files_is_accepted(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.sh").touch()
    assert located(command, tmp_path) == tuple(command)
    assert fault_of(command) is None


def test_program_with_an_undecodable_process_name_ends_with_what_it_started(session: Session, tmp_path: Path) -> None:
    named = f"import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff\\xfe', 0, 0, 0)\n{HIDING}"
    end = ended(session, Program((sys.executable, "-c", named, str(tmp_path / "pid"), "0"), seconds=60))
    assert (end.outcome, end.stderr) == ("answered", "")
    assert not holders(session.token)


def test_program_that_closes_its_output_and_stays_is_no_program_killed_from_outside(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "GUARD_SECONDS", 0.5)
    end = ended(session, python("import os, time; os.close(1); os.close(2); time.sleep(600)", seconds=5))
    assert (end.outcome, end.status, end.killed) == ("timeout", None, False)
    wait_for(lambda: not holders(session.token))


def test_stop_does_not_wait_for_a_service(session: Session) -> None:
    release = threading.Event()

    def answer(_: HttpRequest) -> HttpResponse:
        release.wait(60)
        return 200, "late"

    with HttpServer(answer) as server:
        attempt = Attempt(Program(url=server.url, seconds=60), QUESTION, session)
        wait_for(lambda: bool(server.received))
        attempt.stop()
        assert session.inbox.take() is None, "the service has not answered yet"
        release.set()


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
def test_answer_with_another_separator_of_lines_is_whole(session: Session, sign: str) -> None:
    code = f"import json; print(json.dumps({{'answer': 'Ida' + {sign!r} + 'Roth'}}, ensure_ascii=False))"
    assert json.loads(ended(session, python(code)).stdout) == {"answer": f"Ida{sign}Roth"}
