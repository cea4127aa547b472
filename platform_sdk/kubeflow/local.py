"""A compiled pipeline, run on this machine by ``kfp.local``, each step in a process of its own.

The run directory is the state: the same pipeline started again on it resumes where it stopped. It is locked
while anything of a run is alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TextIO
from unittest import mock

from kfp import local
from kfp.dsl.graph_component import GraphComponent
from kfp.local import graph_utils, subprocess_task_handler
from kfp.local.status import Status

from platform_sdk.config.errors import UserError
from platform_sdk.files import storage_error
from platform_sdk.processes.guard import child_environment, guarded

LOCK_SECONDS = 10.0
TAIL = 15
# The end of the shell program in which KFP wraps a step, where it starts Python.
_LAUNCH = "python3 -m kfp.dsl.executor_main"
_TOLD = re.compile(r"^(?:\w+\.)*(?:UserError|ConfigError|RecordError|ManifestError): (.*)$")


class Listener:
    """Callbacks for the progress of a run, here ignored; ``ago`` is how many seconds ago a step began."""

    def started(self, task: str, ago: float = 0.0) -> None: ...

    def said(self, task: str, line: str) -> None: ...

    def stopping(self, task: str) -> None:
        """The run was interrupted; its step is being ended."""

    def finished(self, task: str, seconds: float) -> None: ...

    def failed(self, task: str, seconds: float) -> None: ...


class StepFailed(UserError):
    """A step of the run ended with an error; the message holds it, and where the whole log is."""


def run_local(
    pipeline: GraphComponent,
    arguments: dict[str, Any],
    order: Sequence[str],
    run_dir: Path,
    lock: TextIO,
    listener: Listener,
) -> None:
    """Run a pipeline to its end, its tasks in the order given.

    Step output goes to ``logs/TASK.log`` in the run directory. On KeyboardInterrupt the running step is ended; a
    step whose run is killed ends by itself.

    Args:
        lock: What ``locked`` gave; the steps hold it as long as they live.

    Raises:
        StepFailed: a step failed; the ones after it were not started.
    """
    outputs = run_dir / "kfp"
    shutil.rmtree(outputs, ignore_errors=True)  # of an earlier attempt; KFP names its folders by the time
    session = _Session(run_dir, lock, listener)
    local.init(
        local.SubprocessRunner(use_venv=False),
        pipeline_root=str(outputs),
        workspace_root=str(outputs / "workspace"),
    )
    with _handled_by(session, order), contextlib.redirect_stdout(io.StringIO()):
        try:
            pipeline(**arguments)
        except RuntimeError as error:
            if session.failure is None:
                raise
            raise session.failure from error


class _Session:
    """Runs the tasks of one run, in place of kfp.local's own handler."""

    def __init__(self, run_dir: Path, lock: TextIO, listener: Listener) -> None:
        self.logs = run_dir / "logs"
        self.lock = lock
        self.listener = listener
        self.failure: StepFailed | None = None

    def run(self, command: list[str], variables: dict[str, str]) -> Status:
        task = _task_name(command)
        path = self.logs / f"{task}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.listener.started(task)
        began = time.monotonic()
        # Line by line: what a step said last must be there when the run is killed.
        with path.open("a", encoding="utf-8", buffering=1) as log:
            code, tail = self._execute(task, command, variables, log)
        seconds = time.monotonic() - began
        if code == 0:
            self.listener.finished(task, seconds)
            return Status.SUCCESS
        self.listener.failed(task, seconds)
        self.failure = StepFailed(f"step {task} failed: {cause(tail, code)}\n(its whole log: {path})")
        return Status.FAILURE

    def _execute(self, task: str, command: list[str], variables: dict[str, str], log: TextIO) -> tuple[int, list[str]]:
        """The command's exit status and its last lines."""
        process = subprocess.Popen(
            guarded(command),
            stdin=self.lock,  # held as long as anything of the step lives
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=child_environment(variables),
            start_new_session=True,  # Ctrl-C is for the run, which tells its step
        )
        assert process.stdout is not None
        tail: deque[str] = deque(maxlen=200)
        try:
            for line in process.stdout:
                log.write(line)
                tail.append(line.rstrip())
                if line.strip():
                    self.listener.said(task, line.rstrip())
            return process.wait(), list(tail)
        except BaseException:
            self.listener.stopping(task)
            process.terminate()
            process.wait()
            raise


def cause(lines: list[str], code: int) -> str:
    """Return why a step failed: the message that was meant for people, or else the last lines it wrote."""
    for number in reversed(range(len(lines))):
        if told := _TOLD.match(lines[number]):
            return "\n".join([told[1], *lines[number + 1 :]]).strip()
    if not any(lines):
        return f"exit status {code}, and it wrote nothing"
    return f"exit status {code}; its last lines:\n" + "\n".join(f"  {line}" for line in lines[-TAIL:])


def with_interpreter(command: Sequence[str], executable: str) -> list[str]:
    """Return a step's command with its Python interpreter replaced and every argument as it was.

    KFP's own ``replace_python_executable`` also replaces ``python3`` in the arguments, which breaks paths.

    Raises:
        ValueError: the command is not one of a lightweight component.
    """
    for place, part in enumerate(command):
        if _LAUNCH in part:  # the shell program comes before the component's code, which might contain the same words
            program = part.replace(_LAUNCH, _LAUNCH.replace("python3", shlex.quote(executable), 1), 1)
            return [*command[:place], program, *command[place + 1 :]]
    raise ValueError(f"no {_LAUNCH!r} in the command of a step; KFP's version may have changed: {command[:3]}")


def _task_name(command: list[str]) -> str:
    """KFP hands the task's name on only as the folder of its outputs."""
    executor_input = json.loads(command[command.index("--executor_input") + 1])
    return Path(executor_input["outputs"]["outputFile"]).parent.name


@contextlib.contextmanager
def _handled_by(session: _Session, order: Sequence[str]) -> Iterator[None]:
    """Let ``session`` run the tasks, in this order.

    kfp.local has no hook for its tasks' processes, output or end, and sorts them by name where their
    dependencies leave it free: the last evaluation would come before the first.
    """

    class Handler:
        def __init__(self, full_command: list[str], env_vars: dict[str, str], **_: Any) -> None:
            self.command = with_interpreter(full_command, sys.executable)
            self.variables = env_vars

        def run(self) -> Status:
            return session.run(self.command, self.variables)

    with (
        mock.patch.object(subprocess_task_handler, "SubprocessTaskHandler", Handler),
        # A stack: the task at its end is the first to run.
        mock.patch.object(graph_utils, "topological_sort_tasks", return_value=[*reversed(order)]),
    ):
        yield


@contextlib.contextmanager
def locked(run_dir: Path) -> Iterator[TextIO]:
    """Lock a run directory.

    Raises:
        UserError: it is a file, cannot be written to, or another run is at work there.
    """
    if run_dir.exists() and not run_dir.is_dir():
        raise UserError(f"{run_dir}: is a file, but a run needs a directory; choose another --workdir")
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        opened = (run_dir / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        why = UserError(f"{run_dir}: cannot be a run directory ({error.strerror}); choose another --workdir")
        raise storage_error(error) or why from error
    with opened as lock:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{run_dir}: another run is using this directory; wait for it, or choose another --workdir"
                    ) from error
                time.sleep(0.2)  # a step of a killed run may need a moment to end
        yield lock


def is_locked(run_dir: Path) -> bool:
    """Return whether a run is at work in a run directory."""
    try:
        with (run_dir / ".lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM as KeyboardInterrupt, so that both end a run in the same way."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
