"""Runs a command and ends it when this process is told to end, or when the one that started it is gone.

``python -m platform_sdk.kubeflow.guard OWNER COMMAND…``, OWNER being the process id of the one that starts it. A step
outlives neither Ctrl-C nor a SIGKILL of the run, and nothing that it started outlives the step: two processes must
never write into one run directory. The exit status is the command's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

POLL_SECONDS = 0.2
GRACE_SECONDS = 5.0
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class _Told(Exception):
    """A signal said that it is time to end."""


def main() -> int:
    owner, command = int(sys.argv[1]), sys.argv[2:]
    _adopt_orphans()
    signal.signal(signal.SIGTERM, _raise)
    signal.signal(signal.SIGINT, _raise)
    try:
        return _run(owner, command)
    except _Told:
        return 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _end_descendants()


def _run(owner: int, command: list[str]) -> int:
    process = subprocess.Popen(command, start_new_session=True)
    try:
        while os.getppid() == owner:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(POLL_SECONDS)
        return 1  # nobody is left to wait for a tidy end
    except _Told:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
        raise


def _raise(number: int, frame: FrameType | None) -> None:
    raise _Told


def _adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends.

    Processes may leave the command's group for a session of their own, as torch's launcher starts its workers; as
    children they cannot escape.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _end_descendants() -> None:
    """Kill the children, then the children that they leave behind, until there are none."""
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # pid (name) state parent …; the name may hold anything, brackets too.
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                yield int(path.parent.name)


if __name__ == "__main__":
    sys.exit(main())
