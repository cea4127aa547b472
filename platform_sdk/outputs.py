"""The one writer for files that a user names with ``-o``.

A regular file appears whole or not at all. A device, pipe or terminal is written directly: it cannot be replaced.
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
    """Open the file of a command's ``-o``. Its folder must exist.

    Raises:
        UserError: the name holds control characters, or is that of a directory, a socket, a block device or a file in a
            folder that does not exist.
    """
    check_output(path)
    try:
        mode = path.stat().st_mode
    except OSError:  # it does not exist yet; other errors repeat as it is written
        mode = stat.S_IFREG
    if stat.S_ISREG(mode):
        # Through a link the file that it leads to is replaced, not the link.
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
    """Write UTF-8 text to the file of a command's ``-o``; see ``writing_output``."""
    with writing_output(path) as stream:
        stream.write(text.encode(errors="backslashreplace"))


def check_output(path: Path, *, folders: bool = False) -> None:
    """Check the name of an output before the work for it begins.

    Args:
        folders: missing folders of the path are made.

    Raises:
        UserError: see ``writing_output``.
    """
    name = os.fsencode(path).decode(errors="surrogateescape")  # whatever the locale
    if not name.isprintable():
        raise UserError(f"-o {shortened(name)}: holds control characters or is not valid text; choose another name")
    if path.is_dir() and not folders:
        raise UserError(f"-o {path}: is a directory; name a file in it")
    if path.is_block_device() or path.is_socket():
        raise UserError(f"-o {path}: is a device or socket that hopforge does not write to; name a file")
    if not folders and not path.parent.is_dir():
        raise UserError(f"-o {path}: there is no folder {path.parent}; make it first, or name another file")
