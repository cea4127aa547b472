"""Read access to an MLflow server by its REST API, since importing MLflow takes seconds and it retries for minutes."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPException, InvalidURL
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from platform_sdk.config.errors import UserError
from platform_sdk.credentials import without_credentials

TIMEOUT = 4.0
"""Timeout of a request in seconds."""
OLDEST = (3, 10)
"""Oldest version of a server that was tried and works; 3.4 does not take the spans of several traces at once."""
REMEDY = "use a server of MLflow {}.{} or later".format(*OLDEST)
UNUSABLE = "the address or the token has characters that HTTP does not allow; in a password, write / as %2F"
"""Reason that does not quote the error, which may hold a part of the password or the token."""
API = "2.0/mlflow"
WORKSPACES = "3.0/mlflow/workspaces"
ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
PAGE = 1000
LIMIT = 100


class Server:
    """Read access to the runs of an MLflow server, with the credentials in MLflow's environment variables.

    Args:
        uri: The server's address; it may hold a user name and a password.
        workspace: The workspace of the runs; by default MLFLOW_WORKSPACE, or else the server's default.
    """

    def __init__(self, uri: str, workspace: str | None = None) -> None:
        self.name = without_credentials(uri)
        try:
            parts = urlsplit(uri.rstrip("/"))
        except ValueError as error:
            raise self._error(UNUSABLE if "@" in uri else str(error)) from error
        self._base = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._headers = {"Content-Type": "application/json"}
        user = unquote(parts.username or "") or os.environ.get("MLFLOW_TRACKING_USERNAME")
        password = unquote(parts.password or "") or os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
        if user:
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        elif bearer := os.environ.get("MLFLOW_TRACKING_TOKEN", "").strip() or _account_token():
            self._headers["Authorization"] = f"Bearer {bearer}"
        if workspace := workspace or os.environ.get("MLFLOW_WORKSPACE"):
            self._headers["X-MLFLOW-WORKSPACE"] = workspace

    def check(self) -> None:
        """Check that the server answers and has what runs are recorded with.

        Raises:
            UserError: the server does not answer, refuses, or is too old.
        """
        self.tags_of("0" * 32)
        version = self._version()
        if version and tuple(map(int, version[:2])) < OLDEST:
            raise UserError(f"MLflow server {self.name}: its version is {'.'.join(version)}; {REMEDY}")

    def _version(self) -> list[str]:
        """Return the numbers of the server's version; empty if the server does not give one."""
        try:
            with self._open(Request(f"{self._base}/version", headers=self._headers)) as answer:
                text = answer.read(LIMIT).decode(errors="replace").strip()
        except (OSError, HTTPException):
            return []
        found = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?\S*", text)
        return [number for number in found.groups() if number] if found else []

    def _open(self, request: Request) -> Any:
        return build_opener(HTTPSHandler(context=_tls()), _Redirects()).open(request, timeout=TIMEOUT)

    def workspaces(self) -> set[str]:
        """Return the names of the workspaces that this user may see; none if the server has no workspaces.

        Raises:
            UserError: the server does not answer, or refuses.
        """
        return {workspace["name"] for workspace in self._request(WORKSPACES).get("workspaces", ())}

    def search_runs(self, query: str) -> list[dict[str, Any]]:
        """Return the newest runs of all experiments that match, at most a hundred, the newest first.

        Raises:
            UserError: the server does not answer, or refuses.
        """
        return next(self._pages_of_runs(query, LIMIT), [])

    def all_runs(self, query: str) -> Iterator[dict[str, Any]]:
        """Yield all runs of all experiments that match, the newest first.

        Raises:
            UserError: the server does not answer, or refuses.
        """
        for page in self._pages_of_runs(query, PAGE):
            yield from page

    def _pages_of_runs(self, query: str, size: int) -> Iterator[list[dict[str, Any]]]:
        """Yield the matching runs in pages of at most ``size``."""
        pages = self._pages(f"{API}/experiments/search", {"max_results": PAGE}, "experiments")
        experiments = [experiment["experiment_id"] for page in pages for experiment in page]
        if experiments:
            wanted = {
                "experiment_ids": experiments, "filter": query, "max_results": size,
                "order_by": ["attributes.start_time DESC"],
            }  # fmt: skip
            yield from self._pages(f"{API}/runs/search", wanted, "runs")

    def _pages(self, path: str, body: dict[str, Any], kind: str) -> Iterator[list[dict[str, Any]]]:
        token: str | None = ""
        while token is not None:
            found = self._request(path, body | ({"page_token": token} if token else {}))
            yield found.get(kind, [])
            token = found.get("next_page_token") or None

    def tags_of(self, run_id: str) -> dict[str, str] | None:
        """Return the tags of a run; None if the server has no such run.

        Raises:
            UserError: the server does not answer, or refuses.
        """
        found = self._request(f"{API}/runs/get?{urlencode({'run_id': run_id})}")
        if not found:
            return None
        try:
            return {tag["key"]: tag["value"] for tag in found["run"]["data"].get("tags", ())}
        except (KeyError, TypeError, AttributeError) as error:
            raise self._error("the answer is not MLflow's") from error

    def metric_history(self, run_id: str, name: str) -> list[dict[str, Any]]:
        """Return all values of a run's metric, each with its ``step`` and ``value``.

        Raises:
            UserError: the server does not answer, or refuses.
        """
        query = urlencode({"run_id": run_id, "metric_key": name})
        return list(self._request(f"{API}/metrics/get-history?{query}").get("metrics", ()))

    def _request(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the response to a request; empty if the server does not find the object."""
        content = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._base}/api/{path}", content, self._headers)
        try:
            with self._open(request) as answer:
                text = answer.read()
        except HTTPError as error:
            message = _message(error)
            if error.code in (400, 404) and body is None:
                return {}
            raise self._error(f"HTTP {error.code}{f': {message}' if message else ''}") from error
        except (ValueError, InvalidURL) as error:
            raise self._error(UNUSABLE) from error
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            slow = isinstance(reason, TimeoutError | socket.timeout)
            # A request that goes through a proxy has the proxy's host.
            proxy = "" if request.host == urlsplit(self._base).netloc else " and the proxy in HTTP_PROXY or HTTPS_PROXY"
            raise self._error(f"no answer within {TIMEOUT:.0f} s" if slow else str(reason), proxy) from error
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._error("the answer is not JSON") from error
        if not isinstance(found, dict):
            raise self._error("the answer is not a JSON object")
        return found

    def _error(self, reason: str, proxy: str = "") -> UserError:
        return UserError(f"MLflow server {self.name}: {without_credentials(reason)}; check MLFLOW_TRACKING_URI{proxy}")


def _account_token() -> str:
    """Return the token of this pod's account if MLflow authenticates by it; empty otherwise."""
    if os.environ.get("MLFLOW_TRACKING_AUTH") not in ("kubernetes", "kubernetes-namespaced"):
        return ""
    return ACCOUNT_TOKEN.read_text().strip() if ACCOUNT_TOKEN.is_file() else ""


def _message(error: HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException, RecursionError):
        return ""


class _Redirects(HTTPRedirectHandler):
    """Redirects; another host than the server's, e.g. that of a login page, gets no credentials."""

    def redirect_request(self, req: Request, *rest: Any) -> Request | None:
        redirected = super().redirect_request(req, *rest)
        if redirected is not None and urlsplit(redirected.full_url).netloc != urlsplit(req.full_url).netloc:
            redirected.remove_header("Authorization")
        return redirected


def _tls() -> ssl.SSLContext:
    """Return the TLS settings from MLflow's environment variables.

    Raises:
        UserError: the file of certificates cannot be read or is not PEM.
    """
    path = os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH")
    try:
        context = ssl.create_default_context(cafile=path)
    except OSError as error:  # ssl.SSLError too
        raise UserError(f"MLFLOW_TRACKING_SERVER_CERT_PATH: {path}: {error.strerror}; name a PEM file") from error
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() == "true":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
