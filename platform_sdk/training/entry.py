"""What ``python -m MODULE --spec FILE`` does in each process, by itself or as one of several under ``torchrun``."""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from platform_sdk.config.errors import UserError
from platform_sdk.display import log_to_stderr

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def entry(run: Callable[[Path], object], module: str) -> int:
    """Hand the specification file to ``run``; return the exit status (2: stderr says what to mend).

    What ``run`` raises is also left where the launcher of several processes looks for it (``launch.py``). Of
    several processes only the first tells how it goes; the others speak of errors alone.

    Args:
        run: Reads the file and works; it is also what imports torch, after the environment is set.
        module: The name after ``-m``, for the usage message.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--spec", type=Path, required=True, help="JSON file that says what to do")
    parser.add_argument("--launcher", type=int, help="id of the process to end with; default: none")
    arguments = parser.parse_args()
    if arguments.launcher is not None:
        _end_with(arguments.launcher)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # else each process takes all cores for its libraries
    log_to_stderr(logging.INFO if os.environ.get("RANK", "0") == "0" else logging.ERROR)
    try:
        run(arguments.spec)
    except (OSError, ValidationError, UserError) as error:
        _leave(error)
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        _leave(error)
        raise
    return 0


def _end_with(launcher: int) -> None:
    """End, by SIGKILL, when ``launcher`` does: two runs must never write into one directory.

    The launcher's signals do not reach a process in a session of its own, and nobody sends any where the launcher
    is killed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != launcher:  # it was gone before this was asked for
        os.kill(os.getpid(), signal.SIGKILL)


def _leave(error: Exception) -> None:
    if "TORCHELASTIC_ERROR_FILE" in os.environ:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        get_error_handler().record_exception(error)
