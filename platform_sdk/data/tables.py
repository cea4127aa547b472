"""Rows of CSV and TSV files with a header line, as spreadsheets and pandas write them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from platform_sdk.display import shortened
from platform_sdk.record_files import RecordError

_LONGEST = 1 << 24  # characters of a field; csv's own limit is 131,072


def read_table(path: Path, data: bytes, separator: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line on which each row begins, and the row's fields by column.

    Raises:
        RecordError: as :func:`read_rows` and :func:`fields_of`.
    """
    for line, columns, row in read_rows(path, data, separator):
        yield line, fields_of(path, line, columns, row)


def read_rows(path: Path, data: bytes, separator: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield the line on which each row begins, the header, and the row.

    Raises:
        RecordError: not UTF-8 text, no header, a column that occurs twice, or a quote that does not end.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RecordError(f"{path}: line {line}: not UTF-8 text; save the file as UTF-8") from error
    csv.field_size_limit(_LONGEST)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    columns: list[str] = []
    start = 1
    try:
        for row in rows:
            line, start = start, rows.line_num + 1
            if not row:
                continue
            if not columns:
                columns = row
                if repeated := [name for name in columns if columns.count(name) > 1]:
                    raise RecordError(f"{path}: line {line}: column {shortened(repeated[0])} occurs twice; rename one")
            else:
                yield line, columns, row
    except csv.Error as error:
        raise RecordError(f"{path}: line {start}: not a valid table: {shortened(str(error))}") from error
    if not columns:
        raise RecordError(f"{path}: line 1: has no header")


def fields_of(path: Path, line: int, columns: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """Return a row's fields by column.

    Raises:
        RecordError: the row is longer or shorter than the header.
    """
    if len(row) != len(columns):
        raise RecordError(f"{path}: line {line}: {len(row)} columns, but the header has {len(columns)}")
    return dict(zip(columns, row, strict=True))
