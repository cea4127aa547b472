"""The audit trail of a run: ``manifest.jsonl``, a chain of entries in which each holds the hash of the one before.

MLflow's tags and files can be edited afterwards. Here an altered, removed, inserted or reordered entry breaks
the chain, and a chain cut short (or rewritten) no longer ends in the head that was published elsewhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.files import REMEDY, whole_lines

FILE_NAME = "manifest.jsonl"
GENESIS = "0" * 64


class ManifestError(UserError, ValueError):
    """A manifest that does not hold; the message names the file, the entry and what is wrong with it."""


class Entry(Struct):
    """One event. ``hash`` is the SHA-256 of the canonical JSON of all other fields; ``time`` is UTC, ISO 8601.

    ``files`` are the SHA-256 digests of the files that the step left (see ``seals``).
    """

    sequence: int
    time: str
    event: str
    digests: dict[str, str]
    # Left out where it is empty, so that entries without files keep their hashes.
    files: dict[str, str] = Field(default_factory=dict, exclude_if=lambda files: not files)
    previous: str
    hash: str


def append(run_dir: Path, event: str, digests: Mapping[str, str], files: Mapping[str, str] | None = None) -> str:
    """Add an event to the chain of ``run_dir`` and return the head's hash.

    An event equal to the last one of its name is not repeated, however often a resumed run says it.
    Safe under parallel steps (a file lock) and kills (a last line cut off by a kill is dropped: it was
    never reported as written).

    Raises:
        ManifestError: the chain that is there is broken.
    """
    path = run_dir / FILE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        content = stream.read()
        complete = content[: content.rfind(b"\n") + 1]
        if len(complete) < len(content):
            stream.truncate(len(complete))
        entries = _chain(path, complete)
        body: dict[str, Any] = {"event": event, "digests": dict(digests)}
        before = next((entry for entry in reversed(entries) if entry.event == event), None)
        if before is not None and (before.digests, before.files) == (body["digests"], dict(files or {})):
            return entries[-1].hash
        if files:
            body["files"] = dict(files)
        body["sequence"] = len(entries)
        body["time"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        body["previous"] = entries[-1].hash if entries else GENESIS
        entry = Entry(**body, hash=_hash(body))
        stream.write(entry.model_dump_json().encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
        return entry.hash


def read(run_dir: Path) -> list[Entry]:
    """Return the entries of the chain that is there; none where there is no manifest yet.

    Raises:
        ManifestError: an entry was altered, removed, inserted or moved.
    """
    path = run_dir / FILE_NAME
    return _chain(path, b"".join(line + b"\n" for line in whole_lines(path)[0]))


def verify(run_dir: Path, head: str | None = None) -> list[Entry]:
    """Return the entries of a chain that holds.

    Args:
        run_dir: The run directory.
        head: The head's hash as published elsewhere (MLflow, model card); without it a chain whose newest
            entries were removed, or one rewritten as a whole, is indistinguishable from an honest one.

    Raises:
        ManifestError: there is no manifest, an entry was altered, removed, inserted or moved, or the chain
            does not end in ``head``.
    """
    path = run_dir / FILE_NAME
    if not path.is_file():
        raise ManifestError(f"{path}: no such file")
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        raise ManifestError(f"{path}: the last line is cut off")
    entries = _chain(path, content)
    found = entries[-1].hash if entries else GENESIS
    if head is not None and found != head:
        raise ManifestError(f"{path}: the chain ends in {found}, but the published head is {head}")
    return entries


def _chain(path: Path, content: bytes) -> list[Entry]:
    entries: list[Entry] = []
    previous = GENESIS
    for number, line in enumerate(content.splitlines()):
        where = f"{path}:{number + 1}"
        try:
            entry = Entry.model_validate_json(line)
        except ValidationError as error:
            raise ManifestError(f"{where}: not a manifest entry ({error.errors()[0]['msg']}); {REMEDY}") from error
        if entry.sequence != number:
            raise ManifestError(f"{where}: entry {entry.sequence} is in the place of entry {number}; {REMEDY}")
        if entry.previous != previous:
            raise ManifestError(f"{where}: the entry before it is not the one it was chained to; {REMEDY}")
        if entry.hash != _hash(entry.model_dump(exclude={"hash"})):
            raise ManifestError(f"{where}: the entry was altered (its hash does not match); {REMEDY}")
        entries.append(entry)
        previous = entry.hash
    return entries


def _hash(body: Mapping[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
