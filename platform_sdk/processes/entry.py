"""Entry point of ``python -m MODULE --spec FILE``, as a single process or under ``torchrun``."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from platform_sdk.config.errors import UserError
from platform_sdk.display import log_to_stderr
from platform_sdk.processes.environment import is_main_process, process_count
from platform_sdk.processes.guard import end_with


def entry(run: Callable[[Path], object], module: str) -> int:
    """Pass the specification file to ``run``; return the exit status (2 for a user error, printed to stderr).

    An exception of ``run`` is also recorded for the launcher of several processes (``launch``). Of several processes
    only the first logs its progress; the others log only errors.

    Args:
        run: Reads the file and does the work; imports torch itself, after the environment is set.
        module: The name after ``-m``, for the usage message.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--spec", type=Path, required=True, help="JSON file with the task")
    parser.add_argument("--launcher", type=int, help="id of the process to end with; default: none")
    arguments = parser.parse_args()
    if arguments.launcher is not None:
        end_with(arguments.launcher)
    if process_count() > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # otherwise each process's libraries use all cores
    log_to_stderr(logging.INFO if is_main_process() else logging.ERROR)
    try:
        run(arguments.spec)
    except (OSError, ValidationError, UserError) as error:
        _record(error)
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        _record(error)
        raise
    return 0


def _record(error: Exception) -> None:
    if "TORCHELASTIC_ERROR_FILE" in os.environ:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        get_error_handler().record_exception(error)
