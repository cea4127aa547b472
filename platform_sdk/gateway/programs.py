"""One attempt of a user's program: a command in separate processes, or a service that is called over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from platform_sdk.credentials import without_credentials
from platform_sdk.gateway.events import Ended, ProgramOutcome
from platform_sdk.gateway.isolation import isolated
from platform_sdk.gateway.runner import run_command
from platform_sdk.gateway.sessions import Session
from platform_sdk.processes.commands import search_path

STDERR_BYTES = 4096
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit statuses of a killed guard, and of a guard whose program was killed."""
_CHUNK = 65536
_POLL_SECONDS = 0.5
GUARD_SECONDS = 20.0
"""Time in which the guard ends a stopped program; its own grace is ``guard.GRACE_SECONDS``."""


@dataclass(frozen=True)
class Program:
    """A user's program, as a command line or the URL of a service; one of them is set.

    Attributes:
        command: run once for each attempt, in hopforge's working directory.
        runner: address of the runner that runs the command in the program's own image; empty to run it here.
        url: gets a POST for each attempt.
        environment: names of this process's variables that the command gets too.
        seconds: time of an attempt, after which it is ended.
        output_bytes: maximum bytes of its standard output, or of the service's response.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    runner: str = ""
    environment: tuple[str, ...] = ()
    seconds: float = 120.0
    output_bytes: int = 2**20


class Attempt:
    """A running attempt; its end is the last event of the session's inbox.

    Args:
        question: the program's input, as JSON on standard input or in the request.
    """

    def __init__(self, program: Program, question: Mapping[str, Any], session: Session) -> None:
        self._program, self._question, self._session = program, question, session
        self._stopped = threading.Event()
        run = self._request if program.url else self._execute_in_image if program.runner else self._execute
        self._thread = threading.Thread(target=self._report, args=(run,), name=f"program {session.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the program with everything that it started; a service is not waited for."""
        self._stopped.set()
        if not self._program.url:
            self._thread.join()

    def _report(self, run: Callable[[], Ended]) -> None:
        try:
            end = run()
        except Exception as error:
            end = Ended(self._failed, None, without_credentials(f"{type(error).__name__}: {error}"))
        self._session.put(end)

    def _execute(self) -> Ended:
        with tempfile.TemporaryDirectory(prefix="hopforge-program-", ignore_cleanup_errors=True) as folder:
            given = Path(folder) / "question.json"  # a file, since a program that reads nothing would block a pipe
            given.write_text(json.dumps(self._question, ensure_ascii=False) + "\n", encoding="utf-8")
            with given.open("rb") as stdin:
                process = subprocess.Popen(
                    isolated(self._program.command, os.getpid()), stdin=stdin, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, env=self._environment(folder),
                )  # fmt: skip
            given.unlink()
            with process:
                try:
                    return self._followed(process)
                finally:
                    process.terminate()  # the guard ends all descendants; without effect where it has ended

    def _execute_in_image(self) -> Ended:
        program, session = self._program, self._session
        variables = {"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", **addresses(session)}
        question = (json.dumps(self._question, ensure_ascii=False) + "\n").encode()
        port = urlsplit(session.base_url).port
        assert port is not None
        end = run_command(
            program.runner, program.command, variables, question, port, seconds=program.seconds,
            output_bytes=program.output_bytes, stderr_bytes=STDERR_BYTES, stop=self._stopped,
        )  # fmt: skip
        return self._ended(end.stopped, end.status, end.stdout, end.stderr)

    def _environment(self, folder: str) -> dict[str, str]:
        """Return the variables of the program: the session's URLs, those named in the recipe, and no others."""
        session = self._session
        named = {name: os.environ[name] for name in self._program.environment if name in os.environ}
        return {
            "PATH": search_path(), "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1",
            **named, **addresses(session),
        }  # fmt: skip

    def _followed(self, process: subprocess.Popen[bytes]) -> Ended:
        """Read the program's output until it ends or reaches a limit."""
        deadline = time.monotonic() + self._program.seconds
        read = {"stdout": bytearray(), "stderr": bytearray()}
        stopped: ProgramOutcome | None = None
        with selectors.DefaultSelector() as selector:
            for name in read:
                stream = getattr(process, name)
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, name)
            while selector.get_map() and stopped is None:
                left = deadline - time.monotonic()
                if left <= 0 or self._stopped.is_set():
                    stopped = "timeout"
                    break
                for key, _ in selector.select(min(left, _POLL_SECONDS)):
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    read[key.data] += chunk
                    del read["stderr"][:-STDERR_BYTES]
                    if len(read["stdout"]) > self._program.output_bytes:
                        stopped = "limit"
            if stopped is not None:
                process.terminate()
        # The guard ends when all of the program's descendants have ended, unless the program works against it.
        try:
            status = process.wait(GUARD_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            status, stopped = process.wait(), stopped or "timeout"
        if status < 0:
            end_holders(self._session.token)
        return self._ended(stopped, status, bytes(read["stdout"]), bytes(read["stderr"]))

    def _ended(self, stopped: ProgramOutcome | None, status: int | None, stdout: bytes, stderr: bytes) -> Ended:
        said, complained = (text.decode(errors="replace") for text in (stdout, stderr))
        last = next((line for line in reversed(re.split(r"[\r\n]+", said)) if line.strip()), "")
        if stopped is not None:
            return Ended(stopped, None, complained, last)
        if status != 0:
            return Ended(self._failed, status, complained, last, killed=status in KILLED)
        return Ended("answered" if last else "no_answer", status, complained, last)

    @property
    def _failed(self) -> ProgramOutcome:
        """The outcome of a program that fails: ``limit`` if it reached one before, and otherwise ``error``."""
        return "limit" if self._session.limit else "error"

    def _request(self) -> Ended:
        return asyncio.run(self._requested())

    async def _requested(self) -> Ended:
        program, body = self._program, bytearray()
        asked = {**self._question, **{name.lower(): value for name, value in addresses(self._session).items()}}
        try:
            # A timeout of httpx limits each read, but not the whole response.
            async with (
                asyncio.timeout(program.seconds),
                httpx.AsyncClient(timeout=None, trust_env=False) as client,
                client.stream("POST", program.url, json=asked) as response,
            ):
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > program.output_bytes:
                        return Ended("limit", None, f"the response has more than {program.output_bytes} bytes")
                    if self._stopped.is_set():
                        return Ended("timeout", None, "the attempt was stopped")
        except TimeoutError:
            return Ended("timeout", None, f"no whole response after {program.seconds:g} seconds")
        text = body.decode(errors="replace").strip()
        if response.status_code != 200:
            return Ended(self._failed, None, f"HTTP {response.status_code}: {text[-STDERR_BYTES:]}")
        return Ended("answered" if text else "no_answer", None, "", text)


def end_holders(token: str) -> None:
    """Kill the processes that have a session's token in their environment: a program's, whose guard was killed."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # ended meanwhile, or of another user
            if token.encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


def addresses(session: Session) -> dict[str, str]:
    """Return the environment variables with a session's URLs and token, which is valid for this session only."""
    return {
        "OPENAI_BASE_URL": session.base_url, "OPENAI_API_KEY": session.token, "HOPFORGE_SESSION": session.name,
        "HOPFORGE_SEARCH_URL": session.search_url, "HOPFORGE_MCP_URL": session.mcp_url,
    }  # fmt: skip


def function_command(function: str) -> tuple[str, ...]:
    """Return the command that calls ``module:name``, which must be importable here."""
    search = os.pathsep.join(path for path in sys.path if path)
    return ("env", f"PYTHONPATH={search}", sys.executable, "-m", "platform_sdk.gateway.function", function)
