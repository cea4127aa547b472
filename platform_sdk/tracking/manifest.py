"""Audit trail of a run: ``manifest.jsonl``, a chain of entries, each with the hash of the previous entry.

MLflow's tags and files can be edited afterwards. In the manifest, an altered, removed, inserted or reordered entry
breaks the chain, and a truncated or rewritten chain no longer ends in the published head.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import operator
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.data.terms import Terms
from platform_sdk.files import REMEDY, append, read_regular, whole_lines
from platform_sdk.run_dir import RunDir

FILE_NAME = RunDir.manifest
GENESIS = "0" * 64


class ManifestError(UserError, ValueError):
    """Error of an invalid manifest; the message names the file, the entry and the fault."""


class Input(Struct):
    """Data or weights that a step read. ``kind`` is ``model``, or the use of a dataset, e.g. ``training``."""

    name: str
    digest: str
    kind: str


class Output(Struct):
    """A file that a step wrote; ``path`` is relative to the run directory unless the file is outside of it."""

    path: str
    bytes: int
    sha256: str


class Job(Struct):
    """A job on a cluster that a step waited for: its pods with their image digests, and its use up to its end.

    ``queued_seconds`` is the time before its admission, ``seconds`` the time since; ``gpu_hours`` is the latter times
    ``gpus``. ``images`` maps the images' names to their digests.
    """

    name: str
    uid: str
    pods: tuple[str, ...] = ()
    images: dict[str, str] = Field(default_factory=dict)
    gpus: int
    queued_seconds: float
    seconds: float
    gpu_hours: float


class JournalSeal(Struct):
    """The first ``bytes`` bytes of a journal."""

    bytes: int
    sha256: str


class Entry(Struct):
    """One event. ``hash`` is the SHA-256 of the canonical JSON of all other fields; ``time`` is UTC, ISO 8601.

    See docs/manifest.md for the fields. Empty fields are left out, so that entries of format 1 keep their hashes.
    """

    sequence: int
    time: str
    event: str
    digests: dict[str, str]
    files_1: dict[str, str] = Field(alias="files", default_factory=dict, exclude_if=operator.not_)
    inputs: tuple[Input, ...] = Field(default=(), exclude_if=operator.not_)
    outputs: tuple[Output, ...] = Field(default=(), exclude_if=operator.not_)
    licences: tuple[Terms, ...] = Field(default=(), exclude_if=operator.not_)
    settings: str = Field(default="", exclude_if=operator.not_)
    journal: JournalSeal | None = Field(default=None, exclude_if=operator.not_)
    used: dict[str, str | int | float] = Field(default_factory=dict, exclude_if=operator.not_)
    jobs: tuple[Job, ...] = Field(default=(), exclude_if=operator.not_)
    origin: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)
    seeds: dict[str, int] = Field(default_factory=dict, exclude_if=operator.not_)
    images: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)
    previous: str
    hash: str

    @property
    def files(self) -> dict[str, str]:
        """SHA-256 digests of the step's files by path, in both formats."""
        return self.files_1 or {output.path: output.sha256 for output in self.outputs}

    @property
    def head(self) -> str:
        """``number:hash`` of this entry, as it is published."""
        return f"{self.sequence}:{self.hash}"

    @property
    def milliseconds(self) -> int:
        """Time of the entry in milliseconds since the epoch."""
        return round(datetime.fromisoformat(self.time).timestamp() * 1000)

    def line(self) -> bytes:
        """Return the entry as a line of the manifest, without the line's end."""
        return self.model_dump_json(by_alias=True).encode()


def hash_of_head(head: object) -> str:
    """Return the hash of a published head: ``number:hash``, or only the hash in format 1."""
    return str(head).rpartition(":")[2]


def record(
    run_dir: Path,
    event: str,
    digests: Mapping[str, str],
    files: Mapping[str, str] | None = None,
    *,
    journal: Path | None = None,
    **fields: Any,
) -> Entry:
    """Add an event to the chain of ``run_dir`` and return the last entry.

    Args:
        digests: Digests by name.
        files: The SHA-256 of the files that the event left, by path in the run directory.
        journal: The journal to be sealed with its current content.
        fields: Other fields of the entry.

    An event equal to the last event of its name is not repeated. Parallel steps are safe (a file lock), and so are
    kills: an incomplete last line is dropped, since it was never reported as written.

    Raises:
        ManifestError: the existing chain is broken.
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
        seal = None if journal is None else _seal(journal)
        before = next((entry for entry in reversed(entries) if entry.event == event), None)
        if before is not None and (before.digests, before.files, before.journal) == (digests, dict(files or {}), seal):
            return entries[-1]
        outputs = [
            Output(path=name, bytes=(run_dir / name).stat().st_size, sha256=digest)
            for name, digest in (files or {}).items()
        ]
        partial = Entry(
            sequence=0, time="", event=event, digests=dict(digests), outputs=tuple(outputs), journal=seal, previous="",
            hash="", **fields,
        )  # fmt: skip
        body = partial.model_dump(by_alias=True, exclude={"hash"}, mode="json")
        body["sequence"] = len(entries)
        body["time"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        body["previous"] = entries[-1].hash if entries else GENESIS
        entry = Entry(**body, hash=digest_of(body))
        append(stream, path, entry.line() + b"\n")
        return entry


def read(run_dir: Path) -> list[Entry]:
    """Return the entries of the chain; empty if there is no manifest yet.

    Raises:
        ManifestError: an entry was altered, removed, inserted or moved.
    """
    path = run_dir / FILE_NAME
    return _chain(path, b"".join(line + b"\n" for line in whole_lines(path)[0]))


def is_intact(entry: Entry, line: bytes) -> bool:
    """Return True if an entry has its own hash, and its line is written as ``record`` writes it."""
    return entry.hash == digest_of(_body(entry)) and entry.line() == line


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
        if entry.hash != digest_of(_body(entry)):
            raise ManifestError(f"{where}: the entry was altered (its hash does not match); {REMEDY}")
        entries.append(entry)
        previous = entry.hash
    return entries


def _body(entry: Entry) -> dict[str, Any]:
    return entry.model_dump(by_alias=True, exclude={"hash"}, mode="json")


def _seal(journal: Path) -> JournalSeal:
    content = read_regular(journal)
    return JournalSeal(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def digest_of(body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of canonical JSON, e.g. of an entry's fields other than its hash."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
