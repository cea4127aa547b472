"""End child processes together with the process that started them, also if it is killed.

``python -m platform_sdk.processes.guard OWNER COMMAND…`` runs a command, and ends it on a signal or when the process
with the id OWNER has ended. A step ends on Ctrl-C and on a SIGKILL of the run, and the step's child processes end with
the step: two processes must never write into one run directory. The exit status is the command's, or 128 + the number
of the signal that ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

POLL_SECONDS = 0.2
GRACE_SECONDS = 5.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def guarded(command: Sequence[str]) -> list[str]:
    """Return the command that runs ``command`` under a guard, which this process owns."""
    return [sys.executable, "-m", "platform_sdk.processes.guard", str(os.getpid()), *command]


def child_environment(values: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process that imports the same code as this process, installed or not.

    Args:
        values: variables that the child has besides this process's.
    """
    search = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": search, "PYTHONUNBUFFERED": "1", **values}


def end_with(parent: int) -> None:
    """End this process, by SIGKILL, when its ``parent`` ends: two runs must never write into one directory.

    The parent's signals do not reach a process in another session, and a killed parent sends none.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


class _EndSignal(Exception):
    """A signal that ends the guard."""


def main() -> int:
    owner, command = int(sys.argv[1]), sys.argv[2:]
    # Processes may leave the command's group for a new session, e.g. the workers of torch's launcher; as
    # children of the guard they cannot escape.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, _raise)
    signal.signal(signal.SIGINT, _raise)
    try:
        return _run(owner, command)
    except _EndSignal:
        return 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _end_descendants()


def _run(owner: int, command: list[str]) -> int:
    # The command inherits file descriptors, e.g. a run's lock.
    process = subprocess.Popen(command, start_new_session=True, close_fds=False)
    try:
        while os.getppid() == owner:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(POLL_SECONDS)
                return status if status >= 0 else 128 - status
        return 1  # the parent died, so there is no process to report to
    except _EndSignal:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
        raise


def _raise(number: int, frame: FrameType | None) -> None:
    raise _EndSignal


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _end_descendants() -> None:
    """Kill the children, then their orphaned children, until there are none."""
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG) != (0, 0):  # all that have ended, before the next look at /proc
                pass
        except ChildProcessError:
            return


def _children() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # pid (name) state parent …; the name may contain any bytes, including brackets.
            if int(path.read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                yield int(path.parent.name)


if __name__ == "__main__":
    sys.exit(main())
