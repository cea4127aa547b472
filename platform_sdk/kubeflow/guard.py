"""Runs a command and ends it when this process is told to end, or when the one that started it is gone.

``python -m platform_sdk.kubeflow.guard COMMAND…``. A step outlives neither Ctrl-C nor a SIGKILL of the run: two
processes must never write into one run directory. The exit status is the command's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from types import FrameType

POLL_SECONDS = 0.2
GRACE_SECONDS = 5.0


class _Told(Exception):
    """A signal said that it is time to end."""


def main() -> int:
    owner = os.getppid()
    signal.signal(signal.SIGTERM, _raise)
    signal.signal(signal.SIGINT, _raise)
    process = subprocess.Popen(sys.argv[1:], start_new_session=True)
    try:
        while os.getppid() == owner:
            try:
                return process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        _signal(process, signal.SIGKILL)  # nobody is left to wait for a tidy end
        return 1
    except _Told:
        _signal(process, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired, _Told):
            process.wait(GRACE_SECONDS)
        _signal(process, signal.SIGKILL)
        return 128 + signal.SIGTERM


def _raise(number: int, frame: FrameType | None) -> None:
    raise _Told


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the command and everything it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    sys.exit(main())
