"""Curves of a running step, read from a growing file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from platform_sdk.files import identity, parse_object, whole_lines
from platform_sdk.tracking.step import StepRun

POLL_SECONDS = 2.0


@contextmanager
def following(step: StepRun, path: Path, *, axis: str, phase: str) -> Iterator[None]:
    """Log the JSON lines of ``path`` as curves over ``axis`` while the body runs, and the remaining lines afterwards.

    The writer of the file, this process or its children, is independent of tracking. Lines of an earlier attempt are
    logged after the body has written or succeeded, since they have not been verified before.
    """
    stop = threading.Event()
    before = _identity(path)
    logged: list[bytes] = []

    def log() -> None:
        # A resumed writer may write the last lines again, so lines are logged from the first one that differs.
        lines, _ = whole_lines(path)
        pairs = zip(logged, lines, strict=False)
        start = next((number for number, (old, new) in enumerate(pairs) if old != new), min(len(logged), len(lines)))
        step.log_curve(_rows(path, lines, start), axis=axis, phase=phase)
        logged[:] = lines

    def tell() -> None:
        if _identity(path) != before:
            log()

    def follow() -> None:
        while not stop.wait(POLL_SECONDS):
            tell()

    thread = threading.Thread(target=follow, name=f"following {path.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        tell()
    log()


def _identity(path: Path) -> tuple[int, ...] | None:
    return identity(path) if path.exists() else None


def _rows(path: Path, lines: list[bytes], start: int) -> list[dict[str, Any]]:
    """Return the objects of the lines after the first ``start``."""
    return [
        parse_object(line.decode(errors="replace"), f"{path}:{number}")
        for number, line in enumerate(lines[start:], start=start + 1)
    ]
