"""Execution of a plan on one machine, each task in its own process, forked by a warm worker.

The run directory is the state: starting the same plan on it again resumes the run.
"""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol, TextIO

from platform_sdk.config.errors import UserError
from platform_sdk.config.task import Task
from platform_sdk.execution.plan import Outputs, settings_of
from platform_sdk.execution.worker import Request, Result
from platform_sdk.processes.guard import child_environment, guarded
from platform_sdk.run_dir import RunDir

TAIL = 15
LOOK_SECONDS = 0.2
LOGS, WORKER_LOG = "logs", "worker.txt"


class Listener:
    """Callbacks for the progress of a run, which do nothing by default; ``ago`` is the seconds since a step's start."""

    def started(self, task: str, ago: float = 0.0) -> None: ...

    def said(self, task: str, line: str) -> None:
        """Receive a line of the task's log."""

    def stopping(self, task: str) -> None:
        """Receive the interrupt of a run while its task ends."""

    def showed(self, task: str, card: str) -> None:
        """Receive a finished task's card (Markdown)."""

    def finished(self, task: str, seconds: float) -> None: ...

    def failed(self, task: str, seconds: float) -> None: ...


class StepFailed(UserError):
    """Error of a failed step; the message has the cause and the path of the log.

    Args:
        exit_code: exit status of the step's process, negative for a signal.
    """

    def __init__(self, step: str, cause: str, exit_code: int, log: Path) -> None:
        super().__init__(f"step {step} failed: {cause}\n(full log: {log})")
        self.step, self.exit_code = step, exit_code


class Executor(Protocol):
    """Runner of one task; ``heard`` is called with each line of its log."""

    def run(self, request: Request, heard: Callable[[str], None]) -> Result:
        """Return the outcome of the task."""


def walk(
    tasks: Sequence[Task],
    inputs: Callable[[Task, Outputs], dict[str, Any]],
    run_dir: Path,
    executor: Executor,
    listener: Listener,
    outputs: Outputs,
) -> dict[str, dict[str, Any]]:
    """Run tasks in order; return their outputs together with ``outputs``.

    A task's output goes to ``logs/TASK.log`` in the run directory. On KeyboardInterrupt the running task is ended; a
    task of a killed run ends with it.

    Args:
        inputs: Returns a task's inputs from the previous outputs.
        outputs: Outputs of tasks that ran before.

    Raises:
        StepFailed: a task failed; later tasks were not started.
    """
    known = {task: dict(values) for task, values in outputs.items()}
    for task in tasks:
        known[task.id] = _run(task, inputs(task, known), run_dir, executor, listener)
    return known


def _run(task: Task, inputs: dict[str, Any], run_dir: Path, executor: Executor, listener: Listener) -> dict[str, Any]:
    log = RunDir(run_dir).log(task.id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    listener.started(task.id)
    began = time.monotonic()

    def heard(line: str) -> None:
        if line.strip():
            listener.said(task.id, line)

    try:
        request = Request(component=task.component, inputs=inputs, log=log, settings=settings_of(task, inputs))
        done = executor.run(request, heard)
    except KeyboardInterrupt:
        listener.stopping(task.id)
        raise
    seconds = time.monotonic() - began
    if done.outputs is not None:
        listener.showed(task.id, done.card)
        listener.finished(task.id, seconds)
        return done.outputs
    listener.failed(task.id, seconds)
    cause = done.error if done.for_user else _cause(done.code, log)
    raise StepFailed(task.id, cause, done.code, log)


def _cause(code: int, log: Path) -> str:
    """Return the failure cause of a task without a message: the end of its process and its last lines."""
    lines = [line.rstrip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    if code < 0:
        how = f"its process was ended by {signal.Signals(-code).name}"
        how += " (out of memory?)" if code == -signal.SIGKILL else ""
    else:
        how = f"exit status {code}"
    if not lines:
        return f"{how}, without output"
    return f"{how}; its last lines:\n" + "\n".join(f"  {line}" for line in lines[-TAIL:])


@contextmanager
def warm_worker(run_dir: Path, lock: TextIO) -> Iterator[Executor]:
    """Start the worker of a run; it ends with the context, and if this process dies.

    Args:
        lock: The result of ``locked``; the worker and its tasks hold the lock while they live.
    """
    logs = run_dir / LOGS
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / WORKER_LOG).open("ab") as errors:
        process = subprocess.Popen(
            guarded([sys.executable, "-m", "platform_sdk.execution.worker"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=child_environment({}),
            pass_fds=(lock.fileno(),),
            start_new_session=True,  # Ctrl-C must reach only the run, which ends its tasks
        )
    try:
        yield _WarmWorker(process, logs / WORKER_LOG)
    except BaseException:
        process.terminate()
        raise
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # the worker has died, and the last request is still in the buffer
            process.stdin.close()
        process.stdout.close()
        process.wait()


class _WarmWorker:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    def run(self, request: Request, heard: Callable[[str], None]) -> Result:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        offset = request.log.stat().st_size
        try:
            self._process.stdin.write(request.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._ended()
        while not _readable(self._process.stdout):
            offset = _hear(request.log, offset, heard)
        answer = self._process.stdout.readline()
        _hear(request.log, offset, heard)
        return Result.model_validate_json(answer) if answer else self._ended()

    def _ended(self) -> NoReturn:
        """Raise a UserError with the last lines of a worker that ended unexpectedly."""
        self._process.wait()
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL:]
        raise UserError("\n".join([f"the run's worker process ended unexpectedly (see {self._log}):", *lines]))


def _readable(stream: IO[bytes]) -> bool:
    return bool(select.select([stream], [], [], LOOK_SECONDS)[0])


def _hear(log: Path, offset: int, heard: Callable[[str], None]) -> int:
    lines, offset = log_lines(log, offset)
    for line in lines:
        heard(line)
    return offset


def log_lines(log: Path, offset: int = 0) -> tuple[list[str], int]:
    """Return the complete lines of a task's log from byte ``offset`` on, and the offset after them.

    Each update of a progress bar (ended by a carriage return) is a line.
    """
    try:
        with log.open("rb") as stream:
            stream.seek(offset)
            content = stream.read()
    except FileNotFoundError:
        return [], offset
    end = max(content.rfind(b"\n"), content.rfind(b"\r")) + 1
    return content[:end].decode(errors="replace").splitlines(), offset + end
