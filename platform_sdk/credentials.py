"""User names and passwords in URLs (``scheme://user:password@host``), which must not be stored or shown."""

from __future__ import annotations

import re
from typing import Any

# A database password may contain "/" and "@": after a colon, everything up to the last @ counts as the password.
# If a path contains the last @, this hides more than necessary, never less.
_USERINFO = re.compile(r"(?<=://)(?:[^\s/@]*:\S*@|[^\s/]*@)")


def without_credentials(text: str) -> str:
    """Return ``text`` with the user name and password of every URL in it replaced by ``***``."""
    return _USERINFO.sub("***@", text)


def has_credentials(value: Any) -> bool:
    """Return True if a text, or any text inside a JSON value, holds a URL with a user name or password."""
    if isinstance(value, dict):
        return any(has_credentials(inner) for pair in value.items() for inner in pair)
    if isinstance(value, list | tuple):
        return any(map(has_credentials, value))
    return isinstance(value, str) and without_credentials(value) != value


def strip_credentials(value: Any) -> Any:
    """Return a JSON value with ``without_credentials`` applied to every text in it."""
    if isinstance(value, dict):
        return {strip_credentials(name): strip_credentials(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [strip_credentials(inner) for inner in value]
    return without_credentials(value) if isinstance(value, str) else value


def refuse_credentials(value: str, remedy: str) -> str:
    """Return ``value``, a setting that is stored with the run.

    Raises:
        ValueError: it is a URL with a user name or password.
    """
    if has_credentials(value):
        raise ValueError(f"a URL in a recipe must not hold user:password@, since recipes are stored; {remedy}")
    return value
