"""Writer for files named with ``-o``.

A regular file is written atomically. A device, pipe or terminal is written directly, since it cannot be replaced.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from platform_sdk.display import shortened
from platform_sdk.errors import UserError
from platform_sdk.files import name_file, writing


@contextmanager
def writing_output(path: Path) -> Iterator[IO[bytes]]:
    """Open a command's output file. Its folder must exist.

    Raises:
        UserError: the name contains unprintable characters, or is a directory, a socket, a block device or a file in a
            folder that does not exist.
    """
    check_output(path)
    try:
        mode = path.stat().st_mode
    except OSError:  # it does not exist yet; other errors repeat as it is written
        mode = stat.S_IFREG
    if stat.S_ISREG(mode):
        # A link's target is replaced, not the link.
        with writing(path.resolve() if path.is_symlink() else path) as stream:
            yield stream
        return
    try:
        with path.open("wb", buffering=0) as direct:
            yield direct
    except OSError as error:
        name_file(error, path)
        raise


def write_output(path: Path, text: str) -> None:
    """Write UTF-8 text to a command's output file; see ``writing_output``."""
    with writing_output(path) as stream:
        stream.write(text.encode(errors="backslashreplace"))


def check_output(path: Path, *, folders: bool = False) -> None:
    """Check the name of an output file before the work starts.

    Args:
        folders: True if missing folders of the path are created.

    Raises:
        UserError: see ``writing_output``.
    """
    name = os.fsencode(path).decode(errors="surrogateescape")  # whatever the locale
    if not name.isprintable():
        raise UserError(
            f"-o {shortened(name)}: contains characters that cannot be shown, or is not valid text; choose another name"
        )
    if path.is_dir() and not folders:
        raise UserError(f"-o {path}: is a directory; name a file in it")
    if path.is_block_device() or path.is_socket():
        raise UserError(f"-o {path}: is a device or socket; name a file")
    if not folders and not path.parent.is_dir():
        raise UserError(
            f"-o {path}: folder {path.parent} does not exist; create it, or name another file", code="output.no-folder"
        )
