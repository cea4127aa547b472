"""Atomic, durable writing of a run's files, and reading with errors that name the damage.

A run may be killed between any two system calls, and its disk may be full, read-only or damaged. Writers leave
either the old file or the new one. Readers raise a ``UserError`` with the file, the fault and the remedy.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import BaseModel, ValidationError

from platform_sdk.errors import UserError

REMEDY = "restore it from a copy, or start the run again in another --workdir"
WRITABLE = "free space or choose a writable directory (--workdir, -o), then repeat the command"
ACCESSIBLE = "check the path and its permissions; to write elsewhere, use --workdir or -o"
_ACCESS_ERRNOS = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ESPIPE, errno.ENOTDIR,
                            errno.ENAMETOOLONG})  # fmt: skip
_STORAGE_ERRNOS = _ACCESS_ERRNOS | frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EEXIST,
        errno.EIO,
    }
)
_STORAGE_TEXTS = ("No space left on device", "File too large", "Read-only file system", "Disk quota exceeded")
# Errors of torch and SQLite for a full disk that do not quote the operating system.
_WRITER_TEXTS = ("PytorchStreamWriter failed writing file", "database or disk is full", "unable to open database file")

M = TypeVar("M", bound=BaseModel)


def expanded(path: str, place: str, remedy: str = "give a path that begins with /") -> Path:
    """Return a path with the home directory in place of ``~`` or ``~user``.

    Args:
        place: the setting that names the path, for the error.

    Raises:
        UserError: there is no such user, or this user has no home directory.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UserError(f"{place}: {path}: there is no such home directory; {remedy}") from error


@contextmanager
def writing(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary file that becomes ``path`` when the body ends without an error.

    Args:
        path: The file; missing folders are created.
        durable: Flush to the disk before and after renaming, so that the new file survives a power failure.
    """
    make_folder(path.parent)
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: is a directory or a device, not a file; choose another path")
    # Pods on a shared volume can have equal process ids, as do threads of a process.
    owner = f"{os.uname().nodename}.{os.getpid()}.{threading.get_ident()}"
    temporary = path.with_name(f".{path.name}.{owner}.tmp")
    try:
        file = temporary.open("wb")
    except FileNotFoundError as error:
        raise _not_writable(path) from error
    except OSError as error:
        error.filename = str(path)  # not the temporary name
        raise
    try:
        with file as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            name_file(error, path)
        raise
    if durable:
        sync(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:
        raise _not_writable(path) from error


def _not_writable(path: Path) -> UserError:
    """Return the error for a folder such as /proc, which exists but reports "not found" on writing."""
    return UserError(f"{path}: cannot be written: the directory is not writable; {WRITABLE}")


def name_file(error: OSError, path: Path) -> None:
    """Add the file name to an error: the error of a full disk has none."""
    if error.filename is None:
        error.filename = str(path)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write UTF-8 text to ``path`` as one atomic step."""
    with writing(path, durable=durable) as stream:
        stream.write(text.encode())


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's content."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading. A pipe without a writer or an endless device never blocks the caller.

    Raises:
        OSError: the path cannot be opened, or names a directory, pipe or device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.ESPIPE, "it is a pipe or device; save its content as a file and pass that file", str(path))


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file; see ``open_regular``."""
    with open_regular(path) as stream:
        return stream.read()


def identity(path: Path) -> tuple[int, int, int, int]:
    """Return a file's size, mtime, ctime and inode. While these are equal, a known digest is still valid.

    The ctime is included since it cannot be set back.
    """
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def read_text(path: Path) -> str:
    """Return the content of a UTF-8 file.

    Raises:
        UserError: the file is missing, unreadable or not UTF-8.
    """
    try:
        return read_regular(path).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text (byte {error.start}), so it was altered; {REMEDY}") from error
    except FileNotFoundError as error:
        raise UserError(f"{path}: is missing; run the step that writes it first, or restore it") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in ``path``.

    Raises:
        UserError: the file is missing, empty, cut short, not UTF-8 or not a JSON object.
    """
    return parse_object(read_text(path), str(path))


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Return a JSON object; ``where`` (a file, or ``file:line``) begins the error's message.

    Raises:
        UserError: the text is not a JSON object.
    """
    if not text.strip():
        raise UserError(f"{where}: is empty, so it was damaged; {REMEDY}")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = f"{error.msg}, line {error.lineno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise UserError(
            f"{where}: is not valid JSON ({why}), so it was cut short or altered; {REMEDY}", code="file.not-json"
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{where}: holds no JSON object, so it was altered; {REMEDY}")
    return content


def read_model(path: Path, kind: type[M]) -> M:
    """Return the JSON object in ``path`` as a validated ``kind``.

    Raises:
        UserError: as ``read_object``; or a field is missing or invalid.
    """
    content = read_object(path)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "object"
        raise UserError(f"{path}: {field}: {first['msg']}, so it was altered; {REMEDY}") from error


def check_handed_on(path: Path, what: str, actual: object, expected: object) -> None:
    """Compare a value read from ``path`` with the value that its step passed on.

    Raises:
        UserError: they differ.
    """
    if actual != expected:
        raise UserError(f"{path}: its {what} was altered (expected {expected}, found {actual}); {REMEDY}")


def whole_lines(path: Path, offset: int = 0) -> tuple[list[bytes], int]:
    """Return the complete lines of an append-only file from byte ``offset`` on, and the offset after them.

    A last line without a newline is ignored: it is still being written, or a kill cut it short. A missing file has no
    lines.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with open_regular(path) as stream:
            stream.seek(offset)
            content = stream.read()
    except FileNotFoundError:
        return [], offset
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    end = content.rfind(b"\n") + 1
    return content[:end].split(b"\n")[:-1], offset + end


def drop_torn_line(path: Path) -> None:
    """Remove a last line that a kill cut short."""
    size = path.stat().st_size if path.exists() else 0  # before the lines are read: another process may append one
    _, end = whole_lines(path)
    if end < size:
        os.truncate(path, end)


def append(stream: IO[bytes], path: Path, content: bytes) -> None:
    """Append to an open file, durably; for an empty file, which may be new, its folder is flushed too."""
    empty = os.fstat(stream.fileno()).st_size == 0
    stream.write(content)
    stream.flush()
    os.fsync(stream.fileno())
    if empty:
        sync(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, durably, or leave the file unchanged if there is no space for it."""
    try:
        with path.open("ab") as stream:
            append(stream, path, line.encode() + b"\n")
    except OSError as error:
        # A full disk takes part of a line. The next line would be appended to this part.
        with suppress(OSError, UserError):
            drop_torn_line(path)
        name_file(error, path)
        raise


def storage_error(error: BaseException) -> UserError | None:
    """Return the error to show if a file cannot be read or written, or a disk is full; None for other errors.

    Libraries wrap the operating system's error or only quote it, so causes and texts are searched too.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, UserError):
            return None
        text = str(seen)
        known = isinstance(seen, OSError) and seen.errno in _STORAGE_ERRNOS
        if known or any(words in text for words in (*_STORAGE_TEXTS, *_WRITER_TEXTS)):
            # For a copy or a rename, the second name is the target.
            name = (seen.filename2 or seen.filename) if isinstance(seen, OSError) else None
            where = f"{name}: " if name else ""
            reason = (seen.strerror if isinstance(seen, OSError) else None) or text.strip().splitlines()[0][:300]
            if isinstance(seen, OSError) and seen.errno in _ACCESS_ERRNOS:
                return UserError(f"{where or 'a file '}cannot be read or written: {reason}; {ACCESSIBLE}")
            return UserError(f"{where or 'a file '}cannot be written: {reason}; {WRITABLE}")
        seen = seen.__cause__ or seen.__context__
    return None
