"""The one error that is meant for people: its message says what is wrong, where, and the remedy."""

from __future__ import annotations

from platform_sdk.credentials import without_credentials


class UserError(Exception):
    """Something the user can mend. The command line prints the message without a traceback and exits 2.

    Messages quote URLs, of settings and of other libraries' errors: user names and passwords are struck out of them.
    """

    def __init__(self, message: str) -> None:
        super().__init__(without_credentials(message))
