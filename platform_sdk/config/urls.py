"""Types of URLs in settings."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from platform_sdk.credentials import refuse_credentials


def check_address(url: str) -> str:
    """Return the URL of a server.

    Raises:
        ValueError: it has no host, or a host or port that cannot exist.
    """
    try:
        host = urlsplit(url).hostname or ""
        # HTTP clients encode and check names with other characters than ASCII.
        fits = not host.isascii() or all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
        valid = bool(host) and fits and urlsplit(url).port != 0
    except ValueError:
        valid = False
    if not valid:
        # Neither the URL nor the parser's reason is quoted: both may hold a password.
        raise ValueError("the URL has no valid host and port; write e.g. http://host:8000/path")
    return url


HttpUrl = Annotated[str, Field(pattern=r"^https?://\S+$"), AfterValidator(check_address)]


def no_credentials(remedy: str) -> AfterValidator:
    """Return the validator for a URL that is stored with the run; ``remedy`` ends its message."""
    return AfterValidator(partial(refuse_credentials, remedy=remedy))


EndpointUrl = Annotated[HttpUrl, no_credentials("put the key into the environment variable that api_key_env names")]
ToolUrl = Annotated[HttpUrl, no_credentials("put the token into the environment variable that token_env names")]
