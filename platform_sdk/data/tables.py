"""Rows of CSV and TSV files with a header line, as spreadsheets and pandas write them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from platform_sdk.display import shortened
from platform_sdk.record_files import RecordError

_LONGEST = 1 << 24  # characters of a field; csv's own limit is 131,072


def read_table(path: Path, data: bytes, separator: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line on which each row begins, and the row's fields by column.

    Raises:
        RecordError: not UTF-8 text, no header, a column that occurs twice, a row of another length than the header,
            or a quote that does not end.
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
            elif len(row) != len(columns):
                raise RecordError(f"{path}: line {line}: {len(row)} columns, but the header has {len(columns)}")
            else:
                yield line, dict(zip(columns, row, strict=True))
    except csv.Error as error:
        raise RecordError(f"{path}: line {start}: not a valid table: {shortened(str(error))}") from error
    if not columns:
        raise RecordError(f"{path}: line 1: has no header")
