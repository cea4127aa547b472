"""Reading of external JSON and JSONL with a declared shape, with errors that give the position.

The shapes are msgspec structs: undeclared fields are skipped without being built, so scoring a gold file with long
contexts is cheap.
"""

from __future__ import annotations

import codecs
import json
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from platform_sdk.display import shortened
from platform_sdk.files import open_regular, read_regular
from platform_sdk.record_files import RecordError

T = TypeVar("T")
_AT = re.compile(r" - at `(?:key in )?\$(?P<path>[^`]*)`$")
_INDEX = re.compile(r"^\[(\d+)\]")
_LONG_NUMBER = re.compile(rb"\d{4000}")
REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec on text that it cannot decode."""


def read_bytes(path: Path) -> bytes:
    """Return the content of ``path``.

    Raises:
        RecordError: the file does not exist or cannot be read.
    """
    try:
        return read_regular(path)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error


def read_mapped(path: Path) -> memoryview:
    """Return the content of ``path`` memory-mapped, which avoids copying large gold files."""
    try:
        with open_regular(path) as stream:
            if not os.fstat(stream.fileno()).st_size:  # an empty file cannot be mapped
                return memoryview(stream.read())
            return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error


def read_json(path: Path, shape: type[T]) -> T:
    """Return the JSON document in ``path``, checked against ``shape``.

    Raises:
        RecordError: the file is missing, is no JSON, or has a wrong or missing field.
    """
    data = read_mapped(path)
    try:
        return msgspec.json.decode(data, type=shape)
    except REFUSED:
        return check(path, "", parse_loose(path, bytes(data), ""), shape)


def read_json_lines(path: Path, shape: type[T]) -> list[T]:
    """Return the JSON objects of ``path``, one per line (blank lines are skipped), checked as in ``read_json``."""
    data = read_mapped(path)
    try:
        return msgspec.json.Decoder(shape).decode_lines(data)
    except REFUSED:
        return [
            check(path, f"line {number}: ", parse_loose(path, line, f"line {number}: "), shape)
            for number, line in lines_of(bytes(data))
        ]


def lines_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of ``data`` with their numbers from 1."""
    return ((number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip())


def is_list(data: bytes) -> bool:
    """Return True if a JSON text is a list rather than lines of objects."""
    return data.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["


def parse_loose(path: Path, data: bytes, where: str) -> Any:
    """Parse one JSON text into plain Python values.

    Raises:
        RecordError: the text is not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except REFUSED:
        return _loads(path, data, where)


def check(path: Path, where: str, value: Any, shape: type[T]) -> T:
    """Return ``value`` as ``shape``; ``where`` (``"record 3: "``) goes into the error.

    Raises:
        RecordError: a field is missing or of a wrong type.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise RecordError(f"{path}: {where}{describe(error, value, shape)}") from error
    except UnicodeEncodeError as error:
        raise RecordError(f"{path}: {where}the name of a field contains a lone surrogate; rename it") from error


def describe(error: msgspec.ValidationError, value: Any, shape: Any) -> str:
    """Return where ``value`` differs from ``shape``: msgspec's ``… - at `$[3].answer` `` as ``record 4: answer: …``."""
    message = str(error)
    found = _AT.search(message)
    if not found:
        return message
    message, path = message[: found.start()], found["path"]
    field = path.removeprefix(".").partition("[...]")[0]
    if path.startswith("[...]") and isinstance(value, dict):
        key = next((key for key, entry in value.items() if not _fits({key: entry}, shape)), "…")
        path = path.replace("[...]", shortened(key), 1)
    if path.startswith(".") and field != path[1:] and isinstance(value, dict) and isinstance(value.get(field), dict):
        # msgspec does not report which entry of an object is wrong, so each is tried separately.
        others = {name: {} if isinstance(inner, dict) else inner for name, inner in value.items()}
        wrong = (key for key, entry in value[field].items() if not _fits({**others, field: {key: entry}}, shape))
        path = path.replace("[...]", f".{shortened(next(wrong, '…'))}", 1)
    record = _INDEX.match(path)
    if record:
        path = path[record.end() :]
    path = path.lstrip(".")
    return (f"record {int(record[1]) + 1}: " if record else "") + (f"{path}: " if path else "") + message


def _fits(value: Any, shape: Any) -> bool:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return False
    return True


def _loads(path: Path, data: bytes, where: str) -> Any:
    """Parse with the standard library, which also accepts lone surrogates and NaN."""
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        position = f"column {error.colno}" if where else f"line {error.lineno} column {error.colno}"
        raise RecordError(f"{path}: {where}not valid JSON ({error.msg}, {position})") from error
    except UnicodeDecodeError as error:
        position = "" if where else f" (line {_line_at(data, error.start)})"
        raise RecordError(f"{path}: {where}not UTF-8 text{position}") from error
    except RecursionError as error:
        raise RecordError(f"{path}: {where}lists or objects are nested too deeply") from error
    except ValueError as error:  # Python reads no integer of more than 4,300 digits
        found = _LONG_NUMBER.search(data)
        position = f" (line {_line_at(data, found.start())})" if found and not where else ""
        raise RecordError(f"{path}: {where}holds an integer of too many digits{position}") from error


def _line_at(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1
