"""Error whose message names the problem, its place and the remedy."""

from __future__ import annotations

from platform_sdk.credentials import without_credentials


class UserError(Exception):
    """Problem that the user can fix. The command line prints the message without a traceback and exits 2.

    User names and passwords in quoted URLs are removed from the message.
    """

    def __init__(self, message: str) -> None:
        super().__init__(without_credentials(message))
