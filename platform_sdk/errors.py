"""The one error that is meant for people: its message says what is wrong, where, and the remedy."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can mend. The command line prints the message without a traceback and exits 2."""
