"""vLLM server of a step on this machine; on a cluster, the job has one in each pod.

It runs under the guard: when the step ends for any reason, the server and all its processes end too.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import SAMPLER_URL, VLLM_PYTHON
from platform_sdk.processes.environment import GPUS, variables
from platform_sdk.processes.guard import child_environment, guarded
from platform_sdk.run_dir import PhaseDir
from platform_sdk.sampling.serve import HEALTH, HOST

log = logging.getLogger(__name__)

START_SECONDS = 1800.0  # loading a large model from a network's file system takes many minutes
TELL_SECONDS = 30.0
POLL_SECONDS = 0.5
NOTICE_SECONDS = 1.0
TAIL = 15
_ERROR = re.compile(r"\b\w*(Error|Exception): .*")


@contextmanager
def local_server(served: Path, gpus: Sequence[str]) -> Iterator[None]:
    """Run a vLLM server in this context; processes started in it get its URL in ``SAMPLER_URL``.

    Its output goes to ``server.log`` in the folder of its specification.

    Args:
        served: its specification (``sampling.serve.ServedModel``).
        gpus: the GPUs that the server sees.

    Raises:
        UserError: vLLM is not installed, the server did not start, or it ended early; the message has its last lines.
    """
    python = vllm_python()
    path = PhaseDir(served.parent).server_log
    port = _free_port()
    command = [python, "-m", "platform_sdk.sampling.serve", "--spec", str(served), "--port", str(port)]
    with tempfile.TemporaryDirectory(prefix="hopforge-sampler-") as scratch, path.open("w") as output:
        process = subprocess.Popen(
            guarded(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C goes to the step, which stops its server
            env=child_environment({"TMPDIR": scratch, GPUS: ",".join(gpus)}),
        )
        try:
            _wait_until_healthy(process, port, path)
            with variables({SAMPLER_URL: f"http://{HOST}:{port}"}):
                yield
        except Exception as error:
            # If the server has ended, this caused any error inside the context.
            if not isinstance(error, _NotStarted) and _gone(process):
                raise UserError(_ended(process, path)) from error
            raise
        finally:
            process.terminate()
            process.wait()


def vllm_python() -> str:
    """Return the Python with vLLM: ``HOPFORGE_VLLM_PYTHON``, or this Python.

    Raises:
        UserError: vLLM is not installed there.
    """
    named = os.environ.get(VLLM_PYTHON)
    if named:
        if not os.access(named, os.X_OK):
            raise UserError(f"{VLLM_PYTHON}: {named} cannot be executed; name the Python of an environment with vLLM")
        return named
    if find_spec("vllm") is None:
        raise UserError(
            "sampling.engine is openai without a url, so the step starts a vLLM server, but vllm is not installed "
            f"beside {sys.executable}; pip install hopforge[sample], or set {VLLM_PYTHON} to a Python that has it"
        )
    return sys.executable


class _NotStarted(UserError):
    """The server never responded."""


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, path: Path) -> None:
    began = told = time.monotonic()
    while not _healthy(port):
        now = time.monotonic()
        if process.poll() is not None:
            raise _NotStarted(_ended(process, path))
        if now - began > START_SECONDS:
            raise _NotStarted(f"the step's vLLM server did not start within {START_SECONDS:g} s; {_last_lines(path)}")
        if now - told > TELL_SECONDS:
            log.warning("the step's vLLM server starts, since %.0f s (its log: %s)", now - began, path)
            told = now
        time.sleep(POLL_SECONDS)


def _healthy(port: int) -> bool:
    with closing(HTTPConnection(HOST, port, timeout=10)) as connection:  # without a proxy
        try:
            connection.request("GET", HEALTH)
            return connection.getresponse().status == 200
        except (HTTPException, OSError):
            return False


def _gone(process: subprocess.Popen[bytes]) -> bool:
    """Return True if the server has ended; the guard detects it with a short delay."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(NOTICE_SECONDS)
    return process.poll() is not None


def _ended(process: subprocess.Popen[bytes], path: Path) -> str:
    return f"the step's vLLM server ended with status {process.returncode}; {_last_lines(path)}"


def _last_lines(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    if not lines:
        return "it wrote nothing"
    # vLLM's processes fail in a chain: the first error is the cause, and far above the end of the log.
    first = next((match[0] for line in lines if (match := _ERROR.search(line))), None)
    cause = f"its first error was\n  {first}\n" if first else ""
    return f"{cause}its log, {path}, ends with:\n" + "\n".join(f"  {line}" for line in lines[-TAIL:])


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port: int = free.getsockname()[1]
    return port
