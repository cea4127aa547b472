"""SHA-256 of a run's files, cached by size, times and inode, so that an unchanged file is read once.

A run's ``tracking`` folder has two caches. ``digests.json`` is written by the steps of a running run.
``verified.json`` is for readers of finished runs. It is authenticated with a key that only this user can read, so an
edited, copied or foreign cache is discarded and every file is read again. See docs/reproducibility.md for the limits.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.files import identity, open_regular, read_object, sha256, write_text
from platform_sdk.tracking.journal import FOLDER

CACHE = "digests.json"
VERIFIED = "verified.json"
KEY = "verification.key"
KEY_BYTES = 32
SETTLED_NS = 1_000_000_000
"""Age below which a file is not cached, since it may change again without a new mtime."""


class Digests:
    """The steps' cache of digests, without authentication."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._known: dict[str, list[object]] = {}
        with suppress(UserError):  # missing or damaged: the files are read again
            self._known = self._load(read_object(self._path))
        self._changed = False

    @property
    def _path(self) -> Path:
        return self._run_dir / FOLDER / CACHE

    def of(self, path: Path) -> str:
        """Return the digest of a file, from the cache if the file has not changed since."""
        known = self._known.get(self._name(path))
        if isinstance(known, list) and known[:-1] == [*identity(path)]:
            return str(known[-1])
        return self.rehash(path)

    def rehash(self, path: Path) -> str:
        """Return the digest of a file without the cache."""
        before = identity(path)  # a change while the file is read invalidates the entry
        began = time.time_ns()
        digest = sha256(path)
        if self._is_settled(before, began):
            self._known[self._name(path)] = [*before, digest]
            self._changed = True
        return digest

    def save(self) -> None:
        """Write the cache. If several processes do, the last one wins."""
        if self._changed and self._path.parent.is_dir() and os.access(self._path.parent, os.W_OK):
            with suppress(OSError):  # the cache is optional
                write_text(self._path, json.dumps(self._dump()), durable=False)

    def _name(self, path: Path) -> str:
        return str(path)

    def _is_settled(self, found: tuple[int, int, int, int], now: int) -> bool:
        return True

    def _load(self, content: dict[str, object]) -> dict[str, list[object]]:
        return {name: entry for name, entry in content.items() if isinstance(entry, list)}

    def _dump(self) -> dict[str, object]:
        return dict(self._known)


class VerifiedDigests(Digests):
    """The readers' cache, authenticated with this user's key. Without a key nothing is cached.

    Args:
        full: Read every file and ignore the cache.
    """

    def __init__(self, run_dir: Path, *, full: bool = False) -> None:
        self._key = _key()
        self._full = full
        super().__init__(run_dir)

    @property
    def _path(self) -> Path:
        return self._run_dir / FOLDER / VERIFIED

    def save(self) -> None:
        """Write the cache, if there is a key to authenticate it with."""
        if self._key is not None:
            super().save()

    def _name(self, path: Path) -> str:
        return os.path.relpath(path, self._run_dir)  # the run directory may be named in several ways

    def _is_settled(self, found: tuple[int, int, int, int], now: int) -> bool:
        _, modified, changed, _ = found
        return max(modified, changed) < now - SETTLED_NS

    def _load(self, content: dict[str, object]) -> dict[str, list[object]]:
        files = content.get("files")
        if self._full or self._key is None or not isinstance(files, dict):
            return {}
        genuine = hmac.compare_digest(str(content.get("hmac")).encode(), self._hmac(files).encode())
        return super()._load(files) if genuine else {}

    def _dump(self) -> dict[str, object]:
        return {"hmac": self._hmac(self._known), "files": self._known}

    def _hmac(self, files: dict[str, list[object]]) -> str:
        return hmac.new(self._key or b"", json.dumps(files, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key() -> bytes | None:
    """Return this user's key, created at first use; None if no private file can be stored."""
    try:
        folder = Path(os.environ.get("HOPFORGE_CACHE") or Path.home() / ".cache" / "hopforge")
        path = folder / KEY
        with suppress(FileExistsError):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(secrets.token_bytes(KEY_BYTES))
        with open_regular(path) as stream:
            status = os.fstat(stream.fileno())
            private = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
            key = stream.read(KEY_BYTES + 1)
    except (OSError, RuntimeError):  # no home, or it is read-only
        return None
    return key if private and len(key) == KEY_BYTES else None
