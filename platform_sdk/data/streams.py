"""Large files line by line, plain or compressed."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from platform_sdk.files import open_regular
from platform_sdk.record_files import RecordError


def lines_in(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; ``.gz`` and ``.bz2`` are decompressed.

    Raises:
        RecordError: the file cannot be read or decompressed.
    """
    try:
        with _opened(path) as stream:
            yield from stream
    except (OSError, EOFError, zlib.error) as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile:
    stream = open_regular(path)
    match path.suffix:
        case ".gz":
            return gzip.open(stream, "rb")
        case ".bz2":
            return bz2.open(stream, "rb")
    return stream
