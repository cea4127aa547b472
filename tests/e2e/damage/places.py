"""Places where a run cannot be, or where its files cannot be written."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.damage.table import Damage, Row, Table

FULL_AT = ("40k", "1m", "3m")
"""Sizes of a disk: one for the first files, one for the corpus, one for the first updates and MLflow's store."""


class NotMountedError(Exception):
    """Nothing can be mounted here: it takes root and a kernel that lets it."""


def places(table: Table) -> Iterator[Row]:
    """Give the command in places where it cannot end well, and say how it ends."""
    table.restore("finished")
    file = table.place / "a file"
    file.touch()
    yield _ended(table, "a file", file)
    yield _ended(table, "below a file", file / "run")
    with _row_if_not_mounted(table, "read-only") as skipped, _mounted(table.place, "--bind", str(table.place)):
        _mount("-o", "remount,bind,ro", str(table.place))
        yield _ended(table, "read-only", table.run_dir)
        yield _ended(table, "read-only, and new", table.place / "other")
    yield from skipped
    for size in FULL_AT:
        what = f"full at {size}"
        with (
            _row_if_not_mounted(table, what) as skipped,
            _mounted(table.folder / what, "-t", "tmpfs", "-o", f"size={size}", "tmpfs") as disk,
        ):
            yield _ended(table, what, disk / "run")
        yield from skipped


def _ended(table: Table, what: str, workdir: Path) -> Row:
    began = time.monotonic()
    told = table.told(table.start(workdir)) or "ENDED WELL"
    return Row(table.name, Damage("not begun", "(the run directory)", what), told, time.monotonic() - began)


@contextlib.contextmanager
def _row_if_not_mounted(table: Table, what: str) -> Iterator[list[Row]]:
    rows: list[Row] = []
    try:
        yield rows
    except NotMountedError as error:
        rows.append(Row(table.name, Damage("not begun", "(the run directory)", what), f"skipped: {error}", 0.0))


@contextlib.contextmanager
def _mounted(place: Path, *options: str) -> Iterator[Path]:
    place.mkdir(exist_ok=True)
    _mount(*options, str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _mount(*options: str) -> None:
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NotMountedError("there is no mount command") from error
    except subprocess.CalledProcessError as error:
        raise NotMountedError(error.stderr.strip()) from error
