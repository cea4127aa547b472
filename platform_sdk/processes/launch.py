"""Launch of a step's processes by ``torchrun`` on this machine, or by the caller's runner."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.config.errors import UserError
from platform_sdk.run_dir import PhaseDir

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure


@dataclass(frozen=True)
class ProgramImage:
    """Image of a user's program; ``serves``: its own entry point serves a URL, else the runner runs commands in it."""

    image: str
    serves: bool = False


@dataclass(frozen=True)
class StepProcesses:
    """Processes of one training, sampling or extraction: ``python -m MODULE --spec FILE``.

    Attributes:
        verb: their purpose in a word (``train``, ``sample``).
        trains: True if they train; False if they only sample.
        vllm: True if they sample with vLLM in the processes themselves.
        gpus_each: GPUs of one process; 0: it uses none.
        single_process_reason: why there must not be more than one process, if so.
        server_spec: specification of the vLLM server that runs with them (``sampling.serve.ServedModel``).
        shards: number of processes that share nothing, each of which does one part; None: they are connected.
        program: image of the user's program that runs alongside them on a cluster, if there is one.
    """

    module: str
    spec_file: Path
    verb: str
    trains: bool = True
    vllm: bool = False
    gpus_each: int = 1
    single_process_reason: str | None = None
    server_spec: Path | None = None
    shards: int | None = None
    program: ProgramImage | None = None


ProcessRunner = Callable[[StepProcesses], None]
"""Runner that starts the processes on other machines, e.g. as a cluster's job, and waits for their end."""

TAIL = 15
_USER_ERROR = re.compile(r"(?:UserError|RecordError|ManifestError): (.*)", re.DOTALL)


def check_process_count(processes: StepProcesses, count: int) -> None:
    """Raise a UserError if the work cannot be divided among ``count`` processes."""
    if count > 1 and processes.single_process_reason is not None:
        raise UserError(f"{processes.verb}: {count} processes, but {processes.single_process_reason}")


def run_processes(module: str, spec_file: Path, processes: int) -> None:
    """Run ``python -m MODULE --spec FILE`` as ``processes`` connected processes, and wait for them.

    Equal to ``python -m torch.distributed.run --standalone --nproc-per-node N -m MODULE --spec FILE``, except that the
    processes end when this one does, however it ends. Their output goes to this process's, each line with the rank; if
    a process fails, the output is also kept in ``processes/``, next to the specification.

    Args:
        module: Its ``__main__`` calls ``entry.entry``.
        spec_file: JSON file for the module.

    Raises:
        UserError: a process failed, and the others were ended; the message comes from the failed process.
        KeyboardInterrupt: SIGINT or SIGTERM ended them.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logs = PhaseDir(spec_file.parent).processes
    shutil.rmtree(logs, ignore_errors=True)  # logs of an earlier attempt
    logs.mkdir(parents=True)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=spec_file.stem,
        role="rank",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # any free port
        local_addr="localhost",  # the default, the machine's full name, cannot be resolved in every container
        max_restarts=0,  # running the step again resumes from the last checkpoint
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), tee=Std.ALL),
    )
    command = ["-u", "-m", module, "--spec", str(spec_file), "--launcher", str(os.getpid())]
    with _restored_signals():
        try:
            elastic_launch(config, sys.executable)(*command)
        except ChildFailedError as error:
            raise UserError(
                _describe_failures(error, processes, logs)
            ) from None  # torch's message repeats every traceback
    shutil.rmtree(logs)


@contextmanager
def _restored_signals() -> Iterator[None]:
    """Restore the signal handlers that torch's launcher replaces."""
    from torch.distributed.elastic.multiprocessing import SignalException

    taken = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in taken}
    try:
        yield
    except SignalException as stop:
        raise KeyboardInterrupt from stop
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _describe_failures(error: ChildFailedError, processes: int, logs: Path) -> str:
    """Return a process's user error, or otherwise the end of each failed process, starting with the first failure.

    A process often fails only because another one ended at the same moment: only those that the launcher ended
    are left out.
    """
    failures = {rank: f for rank, f in error.failures.items() if f.exitcode != -signal.SIGTERM} or error.failures
    messages = {rank: failure.error_file_data["message"] for rank, failure in failures.items()}
    for message in messages.values():
        if isinstance(message, dict) and (match := _USER_ERROR.match(message["message"])):
            return match[1]
    # Torch's times are whole seconds; within the same second, a process without a message was killed and made the
    # others fail.
    order = sorted(failures, key=lambda rank: (failures[rank].timestamp, isinstance(messages[rank], dict), rank))
    return "\n".join(f"process {rank} of {processes}: {_describe_failure(failures[rank], logs)}" for rank in order)


def _describe_failure(failure: ProcessFailure, logs: Path) -> str:
    message = failure.error_file_data["message"]
    if isinstance(message, dict):  # by entry()
        return str(message["message"])
    how = f"ended by {failure.signal_name()}" if failure.exitcode < 0 else f"ended with status {failure.exitcode}"
    lines = [line for path in logs.glob(f"*/attempt_0/{failure.local_rank}/stderr.log") for line in _last_lines(path)]
    return f"{how}; its last lines:\n" + "\n".join(lines) if lines else f"{how}, without output"


def _last_lines(path: Path) -> list[str]:
    return [f"  {line}" for line in path.read_text(errors="replace").splitlines() if line.strip()][-TAIL:]
