"""Warm worker of a run: a process that imports the steps' packages once, and forks a process for each task.

``python -m platform_sdk.execution.worker`` reads one request per line from standard input (``Request`` as JSON) and
writes one line per request to standard output (``Result`` as JSON). The task's process writes to the task's log and its
result to a file in memory, dies with the worker, and ends on SIGINT.

Without the worker, nine tenths of a small run are the start of Python and the import of torch for each step. Forking is
safe, since the worker computes nothing and starts no thread before it forks.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from platform_sdk.config.struct import Struct
from platform_sdk.errors import UserError
from platform_sdk.execution.step import load_step
from platform_sdk.files import storage_error
from platform_sdk.processes.guard import end_with
from platform_sdk.processes.imports import import_all
from platform_sdk.processes.peak_memory import process_line
from platform_sdk.tracking.runs import recorded_settings

COMMON = (
    "torch", "transformers", "transformers.trainer", "sentence_transformers", "accelerate", "peft", "pymilvus",
    "milvus_lite.server_manager", "jinja2", "scipy.stats", "platform_sdk.methods.launch", "platform_sdk.training.steps",
    "platform_sdk.training.run", "platform_sdk.training.online.loop", "platform_sdk.sampling.transformers_engine",
    "platform_sdk.retrieval.index", "platform_sdk.evaluation.report", "platform_sdk.tracking.following",
)  # fmt: skip
"""Modules that most of hopforge's steps import and that start no thread."""


class Request(Struct):
    """A task to run: its component, its inputs, the file of its log, and the digest of its settings."""

    component: str
    inputs: dict[str, Any]
    log: Path
    settings: str = ""


class Result(Struct):
    """Outputs and card of a finished task, or its error; ``for_user`` is True for the message of a ``UserError``.

    ``code`` is the exit status of the task's process, negative for a signal.
    """

    outputs: dict[str, Any] | None = None
    card: str = ""
    error: str = ""
    for_user: bool = False
    code: int = 0


def run_task(component: str, inputs: dict[str, Any], settings: str = "") -> Result:
    """Run a task in this process, and log the traceback of an error that is not a ``UserError``."""
    try:
        step = load_step(component)
        with recorded_settings(settings):
            finished = step.run(step.Inputs.model_validate(inputs))
    except Exception as error:
        shown = error if isinstance(error, UserError) else storage_error(error)
        if shown is None:
            traceback.print_exc()
            return Result(error=f"{type(error).__name__}: {error}")
        message = "\n".join([str(shown), *getattr(error, "__notes__", [])])
        with suppress(OSError):  # the disk may be full; the message reaches the user without the log
            print(f"error: {message}", file=sys.stderr, flush=True)
        return Result(error=message, for_user=True)
    return Result(outputs=finished.outputs.model_dump(mode="json"), card=finished.card)


class _Worker:
    def __init__(self) -> None:
        self._busy = self._stopping = False
        signal.signal(signal.SIGINT, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """End after the running task, which also receives the signal."""
        self._stopping = True
        if not self._busy:
            os._exit(128 + number)

    def run(self, request: Request) -> Result:
        """Run a request in a forked process."""
        self._busy = True
        # The child must install its handler before a signal reaches it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        worker = os.getpid()
        # A pipe would stay open while processes live that the task forked, e.g. the pool of a reward function.
        answer = os.memfd_create("result")
        child = os.fork()
        if child == 0:
            _be_the_task(request, worker, before, answer)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _, status, usage = os.wait4(child, 0)
        with os.fdopen(answer, "rb") as stream:
            stream.seek(0)
            text = stream.read()
        self._busy = False
        result = Result.model_validate_json(text) if text else Result()
        code = os.waitstatus_to_exitcode(status)
        if code < 0:  # a killed process can write nothing
            with suppress(OSError), request.log.open("a") as log:
                log.write(f"{process_line(usage)}\n")
        return result.model_copy(update={"code": code})

    @property
    def stopping(self) -> bool:
        return self._stopping


def _be_the_task(request: Request, worker: int, mask: set[int], answer: int) -> None:
    """Run the task, write its result, and end this process."""
    code = 1
    try:
        end_with(worker)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _write_to(request.log)
        result = run_task(request.component, request.inputs, request.settings)
        with os.fdopen(answer, "wb") as stream:
            stream.write(result.model_dump_json().encode())
        code = 0 if result.outputs is not None else 1
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for output in (sys.stdout, sys.stderr):
            with suppress(OSError):  # a full disk
                output.flush()
        os._exit(code & 0xFF)


def _write_to(log: Path) -> None:
    """Redirect this process's standard output and error to the log, and its input from /dev/null."""
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (target, 1), (target, 2)):
        os.dup2(old, new)
    os.close(target)
    os.close(nothing)
    # Line buffering keeps all lines written before a kill.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING, stream=sys.stderr, force=True)
    logging.getLogger("platform_sdk").setLevel(logging.INFO)  # other libraries only log warnings


def main() -> int:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of imports must not be read as a result
    # torch then counts GPUs without initialising CUDA, which a forked process could not do again.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    worker = _Worker()
    imported = False
    for line in sys.stdin:
        request = Request.model_validate_json(line)
        if not imported and "." not in request.component:  # a step of one's own imports what it needs
            import_all(COMMON)
            imported = True
        result = worker.run(request)
        if worker.stopping:
            return 128 + signal.SIGINT
        print(result.model_dump_json(), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
