"""Keys and clients of the HTTP endpoints that a recipe names."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from platform_sdk.errors import UserError

if TYPE_CHECKING:
    from openai import OpenAI

CHECK_ADDRESS = "correct the URL, or HTTP_PROXY, HTTPS_PROXY and ALL_PROXY if the environment sets them"
"""Remedy for a client that cannot be opened."""
_NO_KEY = "none"
"""Key that is sent if there is none: the client requires one even if a local server does not."""


def fits_header(value: str) -> bool:
    """Return True if an HTTP header may hold a key or token."""
    return value.isascii() and value.isprintable()


def secret(variable: str, place: str) -> str:
    """Return the key or token in an environment variable, without the white space around it; empty if it is not set.

    Args:
        place: the endpoint, for the error.

    Raises:
        UserError: the value cannot be a header.
    """
    value = os.environ.get(variable, "").strip()
    if not fits_header(value):
        raise UserError(f"{place}: the value of {variable} has characters that no HTTP header may hold; set it again")
    return value


def open_client(place: str, url: str, key: str, *, retries: int, timeout: float) -> OpenAI:
    """Return a client of an OpenAI-compatible endpoint; ``key`` is empty if the endpoint needs none.

    Raises:
        UserError: the URL, or the proxy that the environment names, is not valid.
    """
    from openai import OpenAI

    # At these levels the client logs each request, and the HTTP library its headers.
    for noisy in ("openai", "httpx", "httpcore", "httpx2", "httpcore2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    with opening(place):
        return OpenAI(base_url=url, api_key=key or _NO_KEY, max_retries=retries, timeout=timeout)


@contextmanager
def opening(place: str) -> Iterator[None]:
    """Create an HTTP client in the body.

    Raises:
        UserError: the URL, or the proxy that the environment names, is not valid or not supported.
    """
    try:
        yield
    except Exception as error:  # of the HTTP library, whose errors have no common class
        raise UserError(f"{place}: {str(error).rstrip('.')}; {CHECK_ADDRESS}") from error


def reason(error: Exception, client: OpenAI) -> str:
    """Return an error of a client with its cause, without the key, which a response may quote."""
    text = f"{type(error).__name__}: {error}".rstrip(".")
    if error.__cause__ is not None:
        text += f": {error.__cause__}"
    return (text if client.api_key == _NO_KEY else text.replace(client.api_key, "***"))[:500]
