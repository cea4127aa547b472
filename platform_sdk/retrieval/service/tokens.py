"""Which team a bearer token belongs to."""

from __future__ import annotations

import hmac
import time
from pathlib import Path

from platform_sdk.config.errors import UserError

FRESH_SECONDS = 5.0


class Tokens:
    """The teams' tokens: a directory with one file per team, as Kubernetes mounts a Secret.

    The files are read again every few seconds, so that a rotated Secret counts without a restart.

    Raises:
        UserError: there is no such directory, or no token in it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read()

    def team(self, token: str) -> str | None:
        """The team whose token this is, or None. Takes equally long for every wrong token."""
        if time.monotonic() - self._at > FRESH_SECONDS:
            self._read()
        found = None
        for team, known in self._tokens.items():
            if hmac.compare_digest(known, token.encode()):
                found = team
        return found

    def _read(self) -> None:
        self._at = time.monotonic()
        if not self._directory.is_dir():
            raise UserError(f"{self._directory}: no such directory; it must hold one file per team with its token")
        # A mounted Secret keeps its versions in hidden folders beside the names.
        files = [path for path in self._directory.iterdir() if path.is_file() and not path.name.startswith(".")]
        self._tokens = {path.name: token for path in sorted(files) if (token := path.read_bytes().strip())}
        if not self._tokens:
            raise UserError(f"{self._directory}: holds no token; write one file per team")
