"""Client of a Kubeflow Pipelines server, with retries.

Host and authentication are the same as in ``kfp.Client``. Its methods print links and hide errors, so this client calls
the generated API directly.
"""

from __future__ import annotations

import json
import re
import ssl
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.access import CA_FILE, COOKIES, TOKEN, TOKEN_FILE, access

T = TypeVar("T")

TIMEOUT = (5, 60)  # seconds to connect, and to wait for an answer
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before asking again
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
UNSENT = frozenset({429})  # the request was turned away before it was handled
PERMANENT = re.compile(
    r"ResourceNotFoundError|Invalid ?[Ii]nput ?[Ee]rror|BadRequestError|Already exist|Unauthenticated|PermissionDenied"
    r"|Error \d+ \(2[23]\w{3}\)"
)
"""User errors that Kubeflow Pipelines reports as HTTP 500; the last are the database's data and key errors."""
IDS = {  # required fields of these response types
    "V2beta1Run": "run_id",
    "V2beta1Experiment": "experiment_id",
    "V2beta1Pipeline": "pipeline_id",
    "V2beta1PipelineVersion": "pipeline_version_id",
}


class TransientError(Exception):
    """No response, or a temporary fault. The request may have succeeded, unless it is ``unsent``."""

    def __init__(self, message: str, *, unsent: bool = False) -> None:
        super().__init__(message)
        self.unsent = unsent


class NotFound(UserError):
    """The server has no object with this id."""


class Conflict(Exception):
    """Conflict with an object of the same name."""


class ServerUnavailable(UserError):
    """The server did not respond before the deadline."""


class Server:
    """A Kubeflow Pipelines server, as one user.

    Args:
        host: URL of the server; by default KF_PIPELINES_ENDPOINT, else the server of the cluster this runs in.

    Raises:
        UserError: there is no host, it cannot be reached, is another kind of server, or refuses. All methods raise it.
    """

    def __init__(self, host: str | None = None, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.sleep = sleep
        self._access = access(host)
        self.host = self._access.host
        self.api = self._connect()
        self.multi_user = bool(self.ask(self.api.healthzs.healthz_service_get_healthz).multi_user)

    def _connect(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import kfp

            from platform_sdk.kubeflow.remote import transport

            client = kfp.Client(
                host=self.host,
                # Not used, since every call sets its namespace; without one the client would request it from the
                # server, and write it into the user's home directory.
                namespace="-",
                existing_token=self._access.token,
                cookies=self._access.cookies,
                credentials=self._access.token_file,
                ssl_ca_cert=self._access.ca_file,
            )
            transport.use(client)
            return client

    def link(self, *parts: str) -> str:
        """Return the URL of a page of the UI."""
        return "/".join((self._access.pages, "#", *parts))

    def namespace(self, asked: str | None) -> str | None:
        """Return the namespace to use: ``asked`` on a multi-user server, None on a single-user server.

        Raises:
            UserError: ``asked`` is given to a single-user server, or missing for a multi-user one.
        """
        if self.multi_user and not asked:
            raise UserError(
                f"{self.host} is a multi-user installation; pass --namespace N", code="cluster.namespace-needed"
            )
        if not self.multi_user and asked:
            raise UserError(
                f"{self.host} is a single-user installation, which runs everything in its own namespace; remove "
                f"--namespace {asked}",
                code="cluster.single-user",
            )
        return asked

    def ask(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Return the response to a request that may be repeated."""
        for pause in (*PAUSES, None):
            try:
                return self.once(method, *arguments, **options)
            except TransientError as error:
                if pause is None:
                    raise ServerUnavailable(f"{error}; check --host, and that the server runs") from error
                self.sleep(pause)
            except Conflict as error:
                raise UserError(str(error)) from error
        raise AssertionError

    def ensure(self, find: Callable[[], T | None], make: Callable[[], T]) -> tuple[T, bool]:
        """Return the result of ``find``, else of ``make``, and True if ``make`` created it.

        A response may be lost after the object was created, so ``find`` is called before ``make`` is repeated.
        """
        for pause in (*PAUSES, None):
            if (found := find()) is not None:
                return found, False
            try:
                return make(), True
            except (TransientError, Conflict) as error:
                if pause is None or isinstance(error, Conflict):
                    if (found := find()) is not None:
                        return found, False
                    raise UserError(str(error)) from error
                self.sleep(pause)
        raise AssertionError

    def once(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a method of the generated API.

        Raises:
            TransientError: a retry may succeed.
            Conflict: an object of that name exists.
            UserError: the server refuses, or another kind of server responds.
        """
        from kfp_server_api import ApiException
        from urllib3.exceptions import HTTPError

        from platform_sdk.kubeflow.remote.transport import NotJson

        try:
            answer = method(*arguments, **options, _request_timeout=TIMEOUT)
        except NotJson as error:
            raise UserError(self._stranger("responded, but is not Kubeflow Pipelines")) from error
        except ApiException as error:
            raise self._refusal(error) from error
        except (HTTPError, OSError) as error:
            raise self._failure(error) from error
        name = IDS.get(type(answer).__name__)
        if name is not None and not getattr(answer, name):
            raise UserError(self._stranger(f"responded without the field {name} of Kubeflow Pipelines"))
        return answer

    def _stranger(self, what: str) -> str:
        return (
            f"{self.host} {what} (perhaps a login page, because a session has expired); check --host, and give a token "
            f"({TOKEN}, {TOKEN_FILE}) or a session's cookies ({COOKIES})"
        )

    def _refusal(self, error: Any) -> Exception:
        """Return the error for a response other than success."""
        reason = _message(error)
        said = _brief(reason)
        if not error.status:
            return UserError(self._stranger(f"sent an unreadable response: {said}"))
        if 300 <= error.status < 400:
            # Without the query, which may hold secrets.
            place = urlsplit(urljoin(self.host, (error.headers or {}).get("Location", "")))
            return UserError(self._stranger(f"redirects to {place.scheme}://{place.netloc}{place.path}"))
        if error.status == 409:
            return Conflict(f"{self.host} refuses: {said}")
        if error.status in (401, 403):
            return UserError(
                f"{self.host} refuses (HTTP {error.status}): {said}; check that the namespace exists and is yours, and "
                f"that the token ({TOKEN}, {TOKEN_FILE}) or the session ({COOKIES}) is still valid"
            )
        if error.status in TRANSIENT and not PERMANENT.search(reason):
            return TransientError(f"{self.host} answers HTTP {error.status}: {said}", unsent=error.status in UNSENT)
        kind = NotFound if error.status == 404 and "ResourceNotFoundError" in reason else UserError
        return kind(f"{self.host} refuses (HTTP {error.status}): {said}")

    def _failure(self, error: Exception) -> Exception:
        """Return the error for a missing response."""
        from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

        cause = getattr(error, "reason", None) or error  # of urllib3's error about its attempts
        tls = next((one for one in (cause, *cause.args) if isinstance(one, ssl.SSLError)), None)
        if isinstance(tls, ssl.SSLCertVerificationError):
            return UserError(
                f"the certificate of {self.host} is not trusted: {tls.verify_message}; if a private authority has "
                f"signed it, set {CA_FILE} to a file with the authority's certificate (PEM)"
            )
        if tls is not None and not isinstance(tls, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
            return UserError(
                f"TLS handshake with {self.host} failed: {_brief(str(tls))}; for plain HTTP use --host http://…"
            )
        return TransientError(
            f"{self.host} cannot be reached: {type(cause).__name__}: {_brief(str(cause))}",
            unsent=isinstance(cause, (NewConnectionError, ConnectTimeoutError)),
        )


def _message(error: Any) -> str:
    """Return the server's reason without headers, which may hold secrets. Uploads use other fields for it."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body or ""
    try:
        answer = json.loads(body)
        reason = answer.get("message") or answer.get("error") or _upload_error(answer) or error.reason
    except (ValueError, AttributeError):
        reason = error.reason
    return str(reason)


def _upload_error(answer: dict[str, Any]) -> str:
    """Return an upload's error: its message, and the first line of its details."""
    message = str(answer.get("error_message") or "")
    detail = str(answer.get("error_details") or "").partition("\n")[0].strip()
    return message if not detail or detail in message else f"{message}: {detail}" if message else detail


def _brief(text: str) -> str:
    """Return a text in one line, without its middle if it is long: a server's message ends with the cause."""
    line = " ".join(text.split())
    return line if len(line) <= 400 else f"{line[:150]} … {line[-250:]}"
