"""Passages of a file, each read on access: 24 bytes of each are kept in memory."""

from __future__ import annotations

import os
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple

from platform_sdk.display import shortened
from platform_sdk.files import REMEDY, open_regular
from platform_sdk.record_files import RecordError, check_text
from platform_sdk.records import Passage
from platform_sdk.rows import Rows

Parse = Callable[[Path, int, bytes], Passage]


class _Lines(NamedTuple):
    """Start, length and hash of each line; the hash is Python's keyed SipHash, which no file can be made to match."""

    starts: array[int]
    lengths: array[int]
    hashes: array[int]


class PassageFile(Rows[Passage]):
    """The passages of a JSONL file, by row. Blank lines are skipped.

    The first use reads the file once and keeps the place and a hash of each line. Each access reads the passage's line
    and compares it with the hash, so no altered passage of a file that is edited meanwhile is returned.

    Args:
        path: the file.
        parse: returns the passage of a line, given the path, the number of the line, and the line.
        header: True if the first line is a header.

    Raises:
        RecordError: the file cannot be read.
    """

    def __init__(self, path: Path, parse: Parse, *, header: bool) -> None:
        self._path, self._parse, self._header = path, parse, header
        with self._open() as stream:
            self._descriptor = os.dup(stream.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    def check(self) -> None:
        """Parse all lines.

        Raises:
            RecordError: a line is malformed, or an id is repeated.
        """
        ids = array("q")
        for number, _, line in self._scan():
            passage = self._parse(self._path, number, line)
            check_text(self._path, f"record {len(ids) + 1}: ", passage)
            ids.append(hash(passage.id))
        self._refuse_repeated(ids)

    def _refuse_repeated(self, ids: array[int]) -> None:
        import numpy as np

        values, counts = np.unique(np.frombuffer(ids, dtype=np.int64), return_counts=True)
        suspected = set(values[counts > 1].tolist())
        seen: set[str] = set()
        for row in (row for row, value in enumerate(ids) if value in suspected):
            id_ = self[row].id
            if id_ in seen:
                raise RecordError(f"{self._path}: record {row + 1}: id: {shortened(id_)} is another passage's too")
            seen.add(id_)

    @cached_property
    def _lines(self) -> _Lines:
        lines = _Lines(array("q"), array("q"), array("q"))
        for _, start, line in self._scan():
            lines.starts.append(start)
            lines.lengths.append(len(line))
            lines.hashes.append(hash(line))
        return lines

    def _scan(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the number from 1, the start and the content of each line with a passage."""
        start = 0
        with self._open() as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip() and not (self._header and number == 1):
                    yield number, start, line
                start += len(line)

    def _open(self) -> IO[bytes]:
        try:
            return open_regular(self._path)
        except OSError as error:
            raise RecordError(f"{self._path}: cannot be read: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._lines.starts)

    def row(self, number: int) -> Passage:
        starts, lengths, hashes = self._lines
        line = os.pread(self._descriptor, lengths[number], starts[number])
        if hash(line) != hashes[number]:
            raise RecordError(f"{self._path}: was altered while it was in use; {REMEDY}")
        return self._parse(self._path, number + 1 + self._header, line)

    def __iter__(self) -> Iterator[Passage]:
        return map(self.row, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]
