"""Records in JSONL files.

A JSONL file starts with one header line ``{"record": KIND, "schema": VERSION}``, which states the kind of its records;
a file of another schema version is refused instead of misread.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Generic, Self, TypeVar

from pydantic import ValidationError

from platform_sdk import files
from platform_sdk.display import excerpt, shortened
from platform_sdk.errors import UserError
from platform_sdk.records import Record

logger = logging.getLogger(__name__)


class RecordError(UserError, ValueError):
    """A record that cannot be read; the message names the file, the line and the field."""


R = TypeVar("R", bound=Record)


def header(kind: type[Record]) -> str:
    return json.dumps({"record": kind.KIND, "schema": kind.SCHEMA})


def write_jsonl(path: Path, kind: type[R], records: Iterable[R]) -> int:
    """Write records to ``path`` atomically; return their number."""
    count = 0
    with files.writing(path) as stream:
        stream.write(header(kind).encode() + b"\n")
        for record in records:
            stream.write(record.model_dump_json().encode() + b"\n")
            count += 1
    return count


def read_jsonl(path: Path, kind: type[R]) -> Iterator[R]:
    """Yield the records of ``path``.

    Raises:
        RecordError: the file is missing, of another kind or schema version, or a line is not a
            valid record; the message names file, line and field.
    """
    try:
        stream = files.open_regular(path)
    except FileNotFoundError as error:
        raise RecordError(f"{path}: no such file of {kind.KIND} records") from error
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    with stream:
        check_header(path, stream.readline(), kind)
        for number, line in enumerate(stream, start=2):
            yield parse_line(path, number, line, kind)


def check_header(path: Path, line: bytes, kind: type[Record]) -> None:
    """Raise RecordError unless ``line`` is the header of a ``kind`` file of this schema version."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or more digits or levels than Python reads
        content = None
    if not isinstance(content, dict) or "record" not in content:
        raise RecordError(f"{path}:1: not a hopforge record file (the first line must be {header(kind)})")
    if content["record"] != kind.KIND:
        raise RecordError(
            f"{path}:1: contains {excerpt(content['record'])} records, but {kind.KIND} records are needed"
        )
    if content.get("schema") != kind.SCHEMA:
        raise RecordError(
            f"{path}:1: {kind.KIND} records of schema {excerpt(content.get('schema'))}, but this hopforge reads schema "
            f"{kind.SCHEMA}; write the file again with this version"
        )


def parse_line(path: Path, number: int, line: bytes, kind: type[R]) -> R:
    """Return the record of a line.

    Raises:
        RecordError: it is not a valid record; the message names file, line and field.
    """
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = shortened(".".join(str(part) for part in first["loc"]), 200) or "record"
        raise RecordError(f"{path}:{number}: {field}: {first['msg']}") from error


def check_text(path: Path, where: str, record: Record) -> None:
    """Raise RecordError if a text of ``record`` contains a lone surrogate, which cannot be written as UTF-8.

    Args:
        path: the source file of the record.
        where: the position of the record in the file (``"record 3: "``).
    """
    try:
        record.model_dump_json()
    except ValueError as error:
        for field in type(record).model_fields:
            try:
                record.model_dump_json(include={field})
            except ValueError:
                raise RecordError(f"{path}: {where}{field}: contains a lone surrogate; replace it") from error
        raise


def digest_records(records: Iterable[Record]) -> str:
    """Return the SHA-256 (hex) of records in their order."""
    sha = hashlib.sha256()
    for record in records:
        sha.update(record.model_dump_json().encode())
        sha.update(b"\n")
    return sha.hexdigest()


def digest_file(path: Path, kind: type[Record]) -> str:
    """Return the ``digest_records`` of a file written by ``write_jsonl``, without parsing its records.

    Raises:
        RecordError: the file is missing or of another kind or schema version.
    """
    try:
        stream = files.open_regular(path)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    with stream:
        check_header(path, stream.readline(), kind)
        sha = hashlib.sha256()
        while block := stream.read(1 << 20):
            sha.update(block)
        return sha.hexdigest()


def check_digest(path: Path, kind: type[R], digest: str) -> None:
    """Compare the records of ``path`` with the digest that their step passed on.

    Raises:
        RecordError: the digest differs; or as :func:`read_jsonl`.
    """
    actual = digest_records(read_jsonl(path, kind))
    if actual != digest:
        raise RecordError(
            f"{path}: was changed after it was written (its digest is {actual[:12]}…, not {digest[:12]}…); "
            "restore it, or start again with another --workdir"
        )


def digests_file(path: Path) -> Path:
    """Return the file with the SHA-256 of each line of an ``AppendLog``."""
    return path.with_name(f".{path.name}.sha256")


def _known_digests(path: Path) -> set[str]:
    return {line.decode(errors="replace") for line in files.whole_lines(digests_file(path))[0]}


def line_digest(record: Record) -> str:
    return hashlib.sha256(record.model_dump_json().encode()).hexdigest()


def remove_log(path: Path) -> None:
    """Delete an ``AppendLog``."""
    path.unlink()
    digests_file(path).unlink(missing_ok=True)


def write_log(path: Path, kind: type[R], records: Sequence[R]) -> None:
    """Write records to ``path`` as an ``AppendLog``; the digests first, so that a kill loses no record."""
    lines = sorted(_known_digests(path) | {line_digest(record) for record in records})
    files.write_text(digests_file(path), "".join(f"{line}\n" for line in lines))
    write_jsonl(path, kind, records)


def check_log(path: Path) -> None:
    """Compare an ``AppendLog`` with the digests of its lines. Removed whole lines are not detected.

    Raises:
        RecordError: a line was altered, added or cut.
    """
    digests = digests_file(path)
    if not digests.exists():
        return
    known = _known_digests(path)
    header_line, *lines = path.read_bytes().split(b"\n")
    if not header_line or not lines or lines.pop():
        raise RecordError(f"{path}: was cut; {files.REMEDY}")
    for number, line in enumerate(lines, start=2):
        if hashlib.sha256(line).hexdigest() not in known:
            raise RecordError(
                f"{path}:{number}: was altered after it was written, or {digests.name} was; {files.REMEDY}"
            )


def read_log(path: Path, kind: type[R]) -> list[R]:
    """Return the unaltered records of an ``AppendLog``; warn about altered ones, which are generated again.

    An incomplete last line is ignored silently. Without a digests file, every record counts.

    Raises:
        RecordError: there is no digests file, and a line is not a valid record.
    """
    known = _known_digests(path) if digests_file(path).exists() else None
    lines, _ = files.whole_lines(path)
    if not lines:
        return []
    if known is None:
        check_header(path, lines[0], kind)
    elif lines[0] != header(kind).encode():
        logger.warning("%s:1: is not the header of %s records; all records are generated again", path, kind.KIND)
        return []
    kept = []
    for number, line in enumerate(lines[1:], start=2):
        if known is None or hashlib.sha256(line).hexdigest() in known:
            kept.append(parse_line(path, number, line, kind))
    if len(kept) < len(lines) - 1:
        logger.warning(
            "%s: %d of %d records were altered after they were written; they are generated again",
            path, len(lines) - 1 - len(kept), len(lines) - 1,
        )  # fmt: skip
    return kept


class AppendLog(Generic[R]):
    """Append-only JSONL file whose records survive a kill of the process.

    The digest of a line is written to a separate file before the line. Opening removes records without their digest
    (altered ones, and an incomplete last line), so that the caller generates them again.
    """

    def __init__(self, path: Path, kind: type[R]) -> None:
        files.drop_torn_line(digests_file(path))
        self.records: list[R] = read_log(path, kind)
        whole = [header(kind).encode(), *(record.model_dump_json().encode() for record in self.records)]
        if not (path.exists() and digests_file(path).exists()) or path.read_bytes() != b"".join(
            line + b"\n" for line in whole
        ):
            write_log(path, kind, self.records)
        self._stream = path.open("ab")
        self._digests = digests_file(path).open("ab")

    def append(self, record: R) -> None:
        self._digests.write(line_digest(record).encode() + b"\n")
        self._digests.flush()
        self._stream.write(record.model_dump_json().encode() + b"\n")
        self._stream.flush()
        self.records.append(record)

    def close(self) -> None:
        for stream in (self._digests, self._stream):
            os.fsync(stream.fileno())
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
