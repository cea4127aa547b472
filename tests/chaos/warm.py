"""Processes of a run that need not start: forked from one that has imported everything and computed nothing.

Of a small run nine seconds in ten are Python starting and torch being imported, again for each step, and a kill there
tells little. ``WarmPopen`` forks instead where ``subprocess.Popen`` would start a process of hopforge: the tree of
processes, their pipes, sessions and signals, files and ends are the same.
"""

from __future__ import annotations

import contextlib
import gc
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from platform_sdk.execution.worker import COMMON
from tests.chaos import trace

IMPORTED = (
    "torch", "transformers", "transformers.trainer", "sentence_transformers", "accelerate", "peft", "pymilvus",
    "milvus_lite.server_manager", "mlflow", "mlflow.tracking.client",
    "mlflow.store.tracking.sqlalchemy_store", "mlflow.store.model_registry.sqlalchemy_store", "mlflow.tracing.client",
    "rich.table", "jinja2", "platform_sdk.cli", "platform_sdk.cli.progress", "platform_sdk.execution.runs",
    "platform_sdk.processes.guard", "platform_sdk.tracking.delivery", "platform_sdk.tracking.models",
    "platform_sdk.tracking.traces", "platform_sdk.methods.launch", "platform_sdk.methods.mygo.method",
    "platform_sdk.methods.arena.method", "platform_sdk.training.steps", "platform_sdk.training.online.loop",
    "platform_sdk.sampling.transformers_engine", "platform_sdk.retrieval.index", "platform_sdk.evaluation.report",
    "platform_sdk.execution.worker", *COMMON,
)  # fmt: skip


def import_everything() -> None:
    """Import what the processes of a run import.

    Raises:
        RuntimeError: that has started threads, which no fork would have.
    """
    import importlib

    for name in IMPORTED:
        importlib.import_module(name)
    names = [Path(f"/proc/self/task/{number}/comm").read_text().strip() for number in os.listdir("/proc/self/task")]
    # Arrow's allocator has a thread that does without.
    if len([name for name in names if not name.startswith("jemalloc")]) > 1:
        raise RuntimeError(f"importing has started threads ({', '.join(names)}); use --cold")


class WarmPopen(subprocess.Popen):  # type: ignore[type-arg]
    """``subprocess.Popen`` that forks this process where Python is to run a module of hopforge."""

    def _execute_child(self, args: Any, *others: Any) -> None:
        command = [args] if isinstance(args, str) else [str(part) for part in args]
        if trace.role_of(command) is None:
            super()._execute_child(args, *others)  # type: ignore[misc]
            return
        names = ("executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo", "creationflags",
                 "shell", "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite", "restore_signals",
                 "gid", "gids", "uid", "umask", "start_new_session", "process_group")  # fmt: skip
        given = dict(zip(names, others, strict=True))
        sys.stdout.flush()
        sys.stderr.flush()
        # What fork calls in the parent would swallow a KeyboardInterrupt; to start a program it calls nothing.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        self.pid = os.fork()
        self._child_created = True
        if self.pid == 0:
            _be(command, given, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for end in ("p2cread", "c2pwrite", "errwrite"):
            # As Popen does: of a pipe the child's end, and /dev/null; not a file that was handed in.
            if given[end] not in (-1, getattr(self, "_devnull", None)) and _is_pipe_end(given, end):
                os.close(given[end])
        if getattr(self, "_devnull", None) is not None:
            os.close(self._devnull)


def _is_pipe_end(given: dict[str, Any], end: str) -> bool:
    other = {"p2cread": "p2cwrite", "c2pwrite": "c2pread", "errwrite": "errread"}[end]
    return bool(given[other] != -1)


def _be(command: list[str], given: dict[str, Any], mask: set[int]) -> None:
    """Be the process that was to be started, and end as it does."""
    code = 1
    try:
        gc.freeze()  # nothing of the parent's is collected here, and so closed
        gc.callbacks.clear()  # of the tests' libraries: a KeyboardInterrupt within one would be swallowed
        if given["start_new_session"]:
            os.setsid()
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        ends = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        _own_files([old if old != -1 else number for number, old in enumerate(ends)], given)
        if given["env"] is not None:
            os.environ.clear()
            os.environ.update(given["env"])
        trace.begin(command)
        _work(command)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _own_files(ends: list[int], given: dict[str, Any]) -> None:
    """Standard input, output and error, and of the parent's other files those that a program would inherit."""
    kept = [os.dup(end) for end in ends]
    handed_on = set(given["pass_fds"])
    if not given["close_fds"]:
        handed_on |= {fd for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2 and _inheritable(fd)}
    for fd in handed_on:
        os.set_inheritable(fd, True)
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in kept and number != nothing and number not in handed_on:
            with contextlib.suppress(OSError):  # the one that listed them
                os.fstat(number)
                # In its place, not closed: whoever closes it in the end must not close what got its number since.
                os.dup2(nothing, number)
    for number, end in enumerate(kept):
        os.dup2(end, number)
        os.close(end)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115


def _work(command: list[str]) -> None:
    module = command[command.index("-m") + 1]
    sys.argv = [module, *command[command.index("-m") + 2 :]]
    sys.modules.pop(module, None)  # it was imported; now it is run
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:  # the one that listed them
        return False


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Let every process of hopforge that is started in this context be forked."""
    with mock.patch.object(subprocess, "Popen", WarmPopen):
        yield
