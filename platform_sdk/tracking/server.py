"""Read access to an MLflow server by its REST API, since importing MLflow takes seconds and it retries for minutes."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from platform_sdk.config.errors import UserError
from platform_sdk.credentials import without_credentials

TIMEOUT = 4.0
"""Timeout of a request in seconds."""
API = "api/2.0/mlflow"
PAGE = 1000
LIMIT = 100


class Server:
    """Read access to the runs of an MLflow server, with the credentials in MLflow's environment variables.

    Args:
        uri: The server's address; it may hold a user name and a password.
    """

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri.rstrip("/"))
        self.name = without_credentials(uri)
        self._base = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._headers = {"Content-Type": "application/json"}
        user = unquote(parts.username or "") or os.environ.get("MLFLOW_TRACKING_USERNAME")
        password = unquote(parts.password or "") or os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
        if user:
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        elif bearer := os.environ.get("MLFLOW_TRACKING_TOKEN"):
            self._headers["Authorization"] = f"Bearer {bearer}"

    def search_runs(self, query: str) -> list[dict[str, Any]]:
        """Return the newest runs of all experiments that match, at most a hundred, the newest first.

        Raises:
            UserError: the server does not answer, or refuses.
        """
        experiments: list[str] = []
        page: str | None = ""
        while page is not None:
            body = {"max_results": PAGE} | ({"page_token": page} if page else {})
            found = self._request("experiments/search", body)
            experiments += [experiment["experiment_id"] for experiment in found.get("experiments", ())]
            page = found.get("next_page_token") or None
        if not experiments:
            return []
        wanted = {
            "experiment_ids": experiments, "filter": query, "max_results": LIMIT,
            "order_by": ["attributes.start_time DESC"],
        }  # fmt: skip
        runs: list[dict[str, Any]] = self._request("runs/search", wanted).get("runs", [])
        return runs

    def tags_of(self, run_id: str) -> dict[str, str] | None:
        """Return the tags of a run; None if the server has no such run.

        Raises:
            UserError: the server does not answer, or refuses.
        """
        found = self._request(f"runs/get?{urlencode({'run_id': run_id})}")
        if not found:
            return None
        return {tag["key"]: tag["value"] for tag in found["run"]["data"].get("tags", ())}

    def _request(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the response to a request; empty if the server does not find the object."""
        content = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._base}/{API}/{path}", content, self._headers)
        try:
            with urlopen(request, timeout=TIMEOUT, context=_tls()) as answer:
                found = json.load(answer)
        except HTTPError as error:
            message = _message(error)
            if error.code in (400, 404) and body is None:
                return {}
            raise self._error(f"HTTP {error.code}{f': {message}' if message else ''}") from error
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            slow = isinstance(reason, TimeoutError | socket.timeout)
            raise self._error(f"no answer within {TIMEOUT:.0f} s" if slow else str(reason)) from error
        except ValueError as error:
            raise self._error("the answer is not JSON") from error
        if not isinstance(found, dict):
            raise self._error("the answer is not a JSON object")
        return found

    def _error(self, reason: str) -> UserError:
        return UserError(f"MLflow server {self.name}: {without_credentials(reason)}; check MLFLOW_TRACKING_URI")


def _message(error: HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return ""


def _tls() -> ssl.SSLContext:
    """Return the TLS settings from MLflow's environment variables."""
    context = ssl.create_default_context(cafile=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() == "true":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
