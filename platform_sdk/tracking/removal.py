"""Recorded removal: the log has the files removed from a run, who removed them and why; verify does not miss them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.files import append_line, drop_torn_line
from platform_sdk.tracking import manifest
from platform_sdk.tracking.journal import run_file
from platform_sdk.tracking.log.chain import FILES_REMOVED, RUN_REMOVED, LogEntry, stated
from platform_sdk.tracking.log.client import AnyLog, open_log
from platform_sdk.tracking.opened import RECIPE, open_run
from platform_sdk.tracking.provenance import user_name
from platform_sdk.tracking.removed import RECORD, is_in
from platform_sdk.tracking.seals import last_entries


def remove_files(run_dir: Path, path: str, note: str, *, name: str = "") -> LogEntry:
    """Remove a sealed file, or all sealed files in a folder, from a finished run after recording this in the log.

    A repeated call completes a removal that was interrupted.

    Args:
        run_dir: The run directory.
        path: The file or folder, relative to the run directory or to the current one.
        note: Reason for the removal.
        name: Who removes; by default the user of this process.

    Raises:
        UserError: the run has not finished, or a file was altered; no step has sealed ``path``; or the log cannot be
            written. Nothing is removed then.
    """
    run_dir = run_dir.resolve()
    opened = open_run(run_dir)
    if not opened.finished:
        raise UserError(
            f"{run_dir}: has not finished, and its later steps read the files of its finished ones; finish the run "
            "first, or remove it with --whole"
        )
    inside = _in_run(run_dir, path)
    # A step may have sealed files outside, e.g. those of a base model; they are not the run's.
    sealed = {} if os.path.isabs(inside) else _below(sealed_files(opened.entries), inside)
    if not sealed:
        raise UserError(
            f"{path}: no step of {run_dir} sealed a file there; give the path of a step's file. Logs and checkpoints "
            "may be deleted directly; the run's records, its pages and the patch of its code cannot be removed alone"
        )
    log = open_log(run_dir.parent)
    digest = digest_of(sealed, inside)
    entry = _recorded(log, opened.entries[0].hash, inside, digest) or log.send(
        stated(
            event=FILES_REMOVED, run=log.named(run_dir), start=opened.entries[0].hash, head=opened.entries[-1].head,
            path=inside, digest=digest, who=name or user_name(), note=note, at=_now(),
        )
    )  # fmt: skip
    drop_torn_line(run_dir / RECORD)
    append_line(run_dir / RECORD, entry.line().decode())
    for file in sorted(sealed):
        (run_dir / file).unlink(missing_ok=True)
    for folder in sorted({(run_dir / file).parent for file in sealed}, reverse=True):
        with suppress(OSError):  # it has other files
            folder.rmdir()
    return entry


def remove_run(run_dir: Path, note: str, *, name: str = "") -> LogEntry:
    """Remove a run directory after recording this in the log. Its records in MLflow stay.

    Raises:
        UserError: the directory has no valid manifest, or the log cannot be written. Nothing is removed then.
    """
    run_dir = run_dir.resolve()
    entries = manifest.read(run_dir)
    if not entries:
        raise UserError(f"{run_dir / manifest.FILE_NAME}: is missing or empty, so the log cannot name the run")
    log = open_log(run_dir.parent)
    entry = log.send(
        stated(
            event=RUN_REMOVED, run=log.named(run_dir), start=entries[0].hash, head=entries[-1].head,
            who=name or user_name(), note=note, at=_now(),
        )
    )  # fmt: skip
    for record in (run_file(run_dir), run_dir / RECIPE, run_dir / manifest.FILE_NAME):  # what is left is no run
        record.unlink(missing_ok=True)
    shutil.rmtree(run_dir)
    return entry


def sealed_files(entries: Iterable[manifest.Entry]) -> dict[str, str]:
    """Return the SHA-256 of all files that steps sealed, by path."""
    return {name: digest for entry in last_entries(entries).values() for name, digest in entry.files.items()}


def digest_of(sealed: Mapping[str, str], path: str) -> str:
    """Return the digest of a removal: a file's SHA-256; for a folder, of the lines ``PATH SHA256`` in their order."""
    if path in sealed:
        return sealed[path]
    return hashlib.sha256("".join(f"{name} {sealed[name]}\n" for name in sorted(sealed)).encode()).hexdigest()


def explains(entry: LogEntry, sealed: Mapping[str, str], name: str) -> bool:
    """Return True if an entry of the log records the removal of a file with the digests that steps sealed."""
    below = _below(sealed, entry.path)
    return entry.event == FILES_REMOVED and name in below and entry.digest == digest_of(below, entry.path)


def _in_run(run_dir: Path, path: str) -> str:
    """Return a path relative to the run directory, which may be given from the current directory too."""
    here = Path(os.path.abspath(path))
    for place in (here, here.parent.resolve() / here.name):  # the run directory may be named through a link
        if place.is_relative_to(run_dir):
            return place.relative_to(run_dir).as_posix()
    return Path(os.path.normpath(path)).as_posix()


def _below(sealed: Mapping[str, str], path: str) -> dict[str, str]:
    return {name: digest for name, digest in sealed.items() if is_in(name, [path])}


def _recorded(log: AnyLog, start: str, path: str, digest: str) -> LogEntry | None:
    chain = log.read()
    found = (one for one in chain.entries if (one.event, one.start, one.path) == (FILES_REMOVED, start, path))
    return next((one for one in found if one.digest == digest), None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
