"""Teams by their bearer tokens."""

from __future__ import annotations

import hmac
import logging
import time
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.display import shortened

log = logging.getLogger(__name__)

FRESH_SECONDS = 5.0


class UnreadableTokens(Exception):
    """The tokens became unreadable; every request is refused until they can be read."""


class Tokens:
    """The teams' tokens: a directory with one file per team, as Kubernetes mounts a Secret.

    The files are reread every few seconds, so a rotated Secret takes effect without a restart.

    Raises:
        UserError: the directory does not exist, has no token or cannot be read, two teams share a token, or a team's
            name is not ASCII.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tokens = _read(directory)
        self._at = time.monotonic()

    def team(self, token: str) -> str | None:
        """Return the team of a token, or None, in constant time for wrong tokens.

        Raises:
            UnreadableTokens: the tokens can no longer be read.
        """
        if time.monotonic() - self._at > FRESH_SECONDS:
            try:
                self._tokens = _read(self._directory)
            except UserError as error:
                log.error("every request is refused: %s", error)
                raise UnreadableTokens(str(error)) from error
            self._at = time.monotonic()
        found = None
        for team, known in self._tokens.items():
            if hmac.compare_digest(known, token.encode()):
                found = team
        return found


def _read(directory: Path) -> dict[str, bytes]:
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory; it must hold one file per team with its token")
    # A mounted Secret keeps its versions in hidden folders.
    try:
        files = [path for path in directory.iterdir() if path.is_file() and not path.name.startswith(".")]
        tokens = {path.name: token for path in sorted(files) if (token := path.read_bytes().strip())}
    except OSError as error:
        raise UserError(f"{directory}: its tokens cannot be read ({error}); make the files readable") from error
    if not tokens:
        raise UserError(f"{directory}: holds no token; write one file per team")
    if odd := [team for team in tokens if not (team.isascii() and team.isprintable())]:
        raise UserError(
            f"{directory}: {shortened(odd[0])}: an HTTP header cannot hold this name of a team; name the file with "
            "ASCII characters"
        )
    if len(set(tokens.values())) < len(tokens):
        raise UserError(f"{directory}: two teams share a token; give each team a different token")
    return tokens
