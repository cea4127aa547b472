"""HTTP connection for kfp's client that reports failures.

The client's connection retries silently, follows redirections to login pages, and parses any page as an empty response.
"""

from __future__ import annotations

import json
from typing import Any

from kfp_server_api import ApiException
from kfp_server_api.rest import RESTClientObject
from urllib3 import Retry

NO_REPETITION = Retry(
    total=None, connect=0, read=0, redirect=0, status=0, other=0, raise_on_redirect=False, raise_on_status=False
)


class NotJson(Exception):
    """A successful response that is not a JSON object."""


class Transport(RESTClientObject):  # type: ignore[misc]
    """REST client without retries that accepts only JSON objects."""

    def request(self, *arguments: Any, **options: Any) -> Any:
        """Send a request as the base class does.

        Raises:
            NotJson: the answer is not JSON.
            ApiException: the server responded with an error status or a redirection.
        """
        try:
            answer = super().request(*arguments, **options)
        except ApiException as error:
            error.body = (error.body or b"").decode(errors="replace").encode()  # the client decodes it strictly
            raise
        try:
            whole = json.loads(answer.data)
        except ValueError as error:
            raise NotJson from error
        if not isinstance(whole, dict):
            raise NotJson
        return answer


def use(client: Any) -> None:
    """Make a ``kfp.Client`` use such a connection."""
    api_client = client.runs.api_client
    api_client.configuration.retries = NO_REPETITION
    api_client.rest_client = Transport(api_client.configuration)
