"""Types of URLs in settings."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field

from platform_sdk.credentials import refuse_credentials

HttpUrl = Annotated[str, Field(pattern=r"^https?://\S+$")]


def no_credentials(remedy: str) -> AfterValidator:
    """Return the validator for a URL that is stored with the run; ``remedy`` ends its message."""
    return AfterValidator(partial(refuse_credentials, remedy=remedy))


EndpointUrl = Annotated[HttpUrl, no_credentials("put the key into the environment variable that api_key_env names")]
ToolUrl = Annotated[HttpUrl, no_credentials("put the token into the environment variable that token_env names")]
