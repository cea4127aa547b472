"""Append-only file ``log.jsonl``: entries with the hash of the previous entry, as in a run's manifest."""

from __future__ import annotations

import fcntl
import operator
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.files import REMEDY, append, name_file, open_regular
from platform_sdk.tracking.manifest import GENESIS, digest_of

FILE_NAME = "log.jsonl"
MAX_LINE = 16_384
TEAM_HEADER = "X-Hopforge-Team"
"""Header in which the log service names the owner of a reader's token."""
RUN_ENDED, APPROVED, WITHDRAWN = "run ended", "model approved", "approval withdrawn"
FILES_REMOVED, RUN_REMOVED = "files removed", "run removed"
HASH = r"^[0-9a-f]{64}$"


class LogError(UserError, ValueError):
    """Error of an invalid log; the message names the file, the line and the fault."""


def _optional(length: int) -> Any:
    return Field(default="", max_length=length, exclude_if=operator.not_)


class Statement(Struct):
    """Content of an entry. ``run`` is the run directory, relative to the folder of a local log.

    ``start`` is the hash of the run's first manifest entry, which identifies the run; ``head`` is the manifest's head.
    The fields from ``model`` on belong to approvals and removals; docs/log.md describes them.
    """

    event: Literal["run ended", "model approved", "approval withdrawn", "files removed", "run removed"]
    run: str = Field(min_length=1, max_length=2000)
    start: str = Field(pattern=HASH)
    head: str = Field(pattern=r"^[0-9]{1,9}:[0-9a-f]{64}$")
    status: str = _optional(20)
    weights: str = _optional(128)
    model: str = _optional(500)
    version: str = _optional(20)
    path: str = _optional(2000)
    digest: str = _optional(64)
    who: str = _optional(200)
    note: str = _optional(2000)
    at: str = _optional(40)
    key: str = _optional(64)
    signature: str = _optional(400)

    def content(self) -> dict[str, Any]:
        """Return the fields of the statement, also of an entry."""
        return self.model_dump(include=set(Statement.model_fields), mode="json")


def stated(**fields: Any) -> Statement:
    """Return the statement of these fields.

    Raises:
        UserError: a text is longer than an entry may have it.
    """
    try:
        return Statement(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UserError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


class LogEntry(Statement):
    """Entry of the log. ``team`` is the owner of the token with which the entry was sent; empty in a local log."""

    sequence: int
    time: str
    team: str = Field(default="", exclude_if=operator.not_)
    previous: str
    hash: str

    @property
    def position(self) -> str:
        """``number:hash`` of this entry."""
        return f"{self.sequence}:{self.hash}"

    def line(self) -> bytes:
        """Return the entry as a line of the log, without the line's end."""
        return self.model_dump_json().encode()


class Chain:
    """Entries of a log in memory. ``extend`` checks each line, and ``faults`` collects those that break the chain.

    ``statements`` has the first entry of each statement, by its key.
    """

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.faults: list[str] = []
        self._lines = 0
        self.statements: dict[str, LogEntry] = {}
        self._previous = GENESIS

    def extend(self, lines: Iterator[bytes]) -> None:
        """Add complete lines, without their ends. A line that breaks the chain is a fault."""
        for line in lines:
            number, self._lines = self._lines, self._lines + 1
            try:
                entry = LogEntry.model_validate_json(line)
            except ValidationError:
                self.faults.append(f"line {number + 1} is no entry")
                continue
            body = entry.model_dump(exclude={"hash"}, mode="json")
            if entry.hash != digest_of(body) or entry.line() != line:
                self.faults.append(f"the hash of line {number + 1} does not match")
                continue
            if (entry.sequence, entry.previous) != (number, self._previous):
                self.faults.append(f"line {number + 1} does not follow line {number}")
            elif self.statements.setdefault(_key(entry, entry.team), entry) is not entry:
                self.faults.append(f"line {number + 1} repeats an earlier statement")
            self.entries.append(entry)
            self._previous = entry.hash

    def follow(self, statement: Statement, team: str) -> LogEntry:
        """Return the next entry of the chain, which is not added."""
        body: dict[str, Any] = {
            **statement.content(), "sequence": len(self.entries),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"), "team": team, "previous": self._previous,
        }  # fmt: skip
        partial = LogEntry(**body, hash="")
        return partial.model_copy(update={"hash": digest_of(partial.model_dump(exclude={"hash"}, mode="json"))})


class Log:
    """A log file. Appending is safe for parallel processes and threads, and across kills."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chain = Chain()
        self._offset = 0
        self._owners: dict[str, str] = {}
        self._lock = threading.Lock()

    def read(self) -> Chain:
        """Return the chain with all complete lines of the file. A last line that a kill cut short is left out."""
        with self._lock:
            with suppress(FileNotFoundError), open_regular(self.path) as stream:
                self._catch_up(stream)
            return self.chain

    def append(self, statement: Statement, team: str = "") -> LogEntry:
        """Append a statement and return its entry after it is on the disk; a repeated statement returns the first one.

        Raises:
            LogError: the existing chain is broken.
            NotOwnerError: the statement is about another team's run.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._lock, self.path.open("a+b") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                stream.truncate(self._catch_up(stream))
                if self.chain.faults:
                    raise LogError(f"{self.path}: {self.chain.faults[0]}; {REMEDY}")
                owner = self._owners.get(statement.start, team)
                if owner != team:
                    raise NotOwnerError(f"the run {statement.start[:16]}… belongs to another team")
                known = self.chain.statements.get(_key(statement, team))
                entry = known or self.chain.follow(statement, team)
                append(stream, self.path, b"" if known else entry.line() + b"\n")
                self._catch_up(stream)
                return entry
        except OSError as error:
            name_file(error, self.path)
            raise

    def _catch_up(self, stream: Any) -> int:
        """Read the complete lines that follow the last reading; return the offset of their end."""
        if os.fstat(stream.fileno()).st_size < self._offset:
            raise LogError(f"{self.path}: was cut short while it was open; restore it from a copy")
        stream.seek(self._offset)
        content = stream.read()
        end = content.rfind(b"\n") + 1
        before = len(self.chain.entries)
        self.chain.extend(iter(content[:end].split(b"\n")[:-1]))
        for entry in self.chain.entries[before:]:
            self._owners.setdefault(entry.start, entry.team)
        self._offset += end
        return self._offset


class NotOwnerError(UserError):
    """Error of a statement about another team's run."""


def _key(statement: Statement, team: str) -> str:
    # A signature has several valid spellings, so it is not part of what an entry states.
    content: Mapping[str, Any] = {**statement.content(), "team": team, "signature": ""}
    return digest_of(content)
