"""Lock of a run directory, held while any process of its run lives; handling of SIGTERM."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO

from platform_sdk.config.errors import UserError
from platform_sdk.files import storage_error
from platform_sdk.run_dir import RunDir

LOCK_SECONDS = 10.0


@contextlib.contextmanager
def locked(run_dir: Path) -> Iterator[TextIO]:
    """Lock a run directory.

    Raises:
        UserError: ``run_dir`` is a file, not writable, or used by another run.
    """
    if run_dir.exists() and not run_dir.is_dir():
        raise UserError(
            f"{run_dir}: is a file, but a run needs a directory; choose another --workdir", code="run.not-a-directory"
        )
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        opened = RunDir(run_dir).lock.open("a+", encoding="utf-8")
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
                        f"{run_dir}: another run is using this directory; wait for it, or choose another --workdir",
                        code="run.in-use",
                    ) from error
                time.sleep(0.2)  # a step of a killed run may still be ending
        yield lock


def is_locked(run_dir: Path) -> bool:
    """Return True if a run is using the run directory."""
    try:
        with RunDir(run_dir).lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, so that both signals end a run in the same way."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
