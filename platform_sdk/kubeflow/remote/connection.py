"""The Kubeflow Pipelines server: reached as kfp's own client reaches it, asked again where that may help.

Host and authentication are ``kfp.Client``'s. Its methods print links and hide errors, so the calls are made on the
generated API underneath.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from platform_sdk.config.errors import UserError

T = TypeVar("T")

HOST, UI_HOST = "KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT"
TOKEN, COOKIES = "KF_PIPELINES_TOKEN", "KF_PIPELINES_COOKIES"
TOKEN_FILE = "KF_PIPELINES_SA_TOKEN_PATH"
PROJECTED_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
IN_CLUSTER = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
TIMEOUT = (5, 60)  # seconds to connect, and to wait for an answer
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before asking again
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


class Unanswered(Exception):
    """The server did not answer, or said that it could not at present. What was asked may have happened."""


class Conflict(Exception):
    """There is one of that name already."""


class Server:
    """A Kubeflow Pipelines server, as one user.

    Args:
        host: Its URL; else KF_PIPELINES_ENDPOINT, else the one of the cluster that this runs in.

    Raises:
        UserError: there is no host, it cannot be reached, is no such server, or refuses. So may all methods' calls.
    """

    def __init__(self, host: str | None = None, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        given = host or os.environ.get(HOST)
        if not given and not IN_POD.exists():
            raise UserError(f"no Kubeflow Pipelines to speak to: give --host URL, or set {HOST}")
        self.host = (given or IN_CLUSTER).rstrip("/")
        # Inside the cluster the UI has no address that is known here; its gateway has it under this path.
        self._pages = (os.environ.get(UI_HOST) or given or "/pipeline").rstrip("/")
        self.api = self._connect()
        self.multi_user = self._multi_user()

    def _connect(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import kfp
            from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

            token_file = os.environ.get(TOKEN_FILE) or (PROJECTED_TOKEN if Path(PROJECTED_TOKEN).exists() else None)
            token = os.environ.get(TOKEN)
            return kfp.Client(
                host=self.host,
                # Not used, since every call names its own; without one the client would ask the server, and write
                # what it hears into the user's home.
                namespace="-",
                existing_token=token,
                cookies=os.environ.get(COOKIES),
                credentials=ServiceAccountTokenVolumeCredentials(token_file) if token_file and not token else None,
            )

    def _multi_user(self) -> bool:
        answer = self.ask(self.api.healthzs.healthz_service_get_healthz, _preload_content=False)
        try:
            return bool(json.loads(answer.data).get("multi_user", False))
        except (ValueError, AttributeError) as error:
            raise UserError(
                f"{self.host} answers, but not as Kubeflow Pipelines does (a page to log in, perhaps); check --host, "
                f"and give a token ({TOKEN}, {TOKEN_FILE}) or the cookies of a session ({COOKIES})"
            ) from error

    def link(self, *parts: str) -> str:
        """The address of a page of the UI."""
        return "/".join((self._pages, "#", *parts))

    def namespace(self, asked: str | None) -> str | None:
        """The namespace to speak of: the one asked for in a server of many users, none in one of a single user.

        Raises:
            UserError: there is one and should not be, or the other way round.
        """
        if self.multi_user and not asked:
            raise UserError(f"{self.host} has many users: say whose namespace, with --namespace N")
        if not self.multi_user and asked:
            raise UserError(
                f"{self.host} is installed for a single user and runs everything in its own namespace; leave out "
                f"--namespace {asked}"
            )
        return asked

    def ask(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """The answer to a question that may be asked again."""
        for pause in (*PAUSES, None):
            try:
                return self.once(method, *arguments, **options)
            except Unanswered as error:
                if pause is None:
                    raise UserError(f"{error}; check --host, and that the server runs") from error
                self._sleep(pause)
            except Conflict as error:
                raise UserError(str(error)) from error
        raise AssertionError

    def ensure(self, find: Callable[[], T | None], make: Callable[[], T]) -> tuple[T, bool]:
        """What ``find`` gives, or else what ``make`` makes, and whether it was made now.

        An answer may be lost after the thing was made: so it is looked for before it is made again.
        """
        for pause in (*PAUSES, None):
            if (found := find()) is not None:
                return found, False
            try:
                return make(), True
            except (Unanswered, Conflict) as error:
                if pause is None or isinstance(error, Conflict):
                    if (found := find()) is not None:
                        return found, False
                    raise UserError(str(error)) from error
                self._sleep(pause)
        raise AssertionError

    def once(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a method of the generated API.

        Raises:
            Unanswered, Conflict: see there.
            UserError: the server refuses.
        """
        from kfp_server_api import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return method(*arguments, **options, _request_timeout=TIMEOUT)
        except ApiException as error:
            said = _message(error)
            if error.status == 409:
                raise Conflict(f"{self.host} refuses: {said}") from error
            if not error.status:
                raise UserError(f"{self.host} cannot be reached: {said}") from error
            if error.status in (401, 403):
                raise UserError(
                    f"{self.host} refuses (HTTP {error.status}): {said}; is the namespace there and yours, and the "
                    f"token ({TOKEN}, {TOKEN_FILE}) or the session ({COOKIES}) still good?"
                ) from error
            if error.status in TRANSIENT and not _denied(said):
                raise Unanswered(f"{self.host} answers HTTP {error.status}: {said}") from error
            raise UserError(f"{self.host} refuses (HTTP {error.status}): {said}") from error
        except (HTTPError, OSError) as error:
            raise Unanswered(f"{self.host} cannot be reached: {type(error).__name__}: {_brief(str(error))}") from error


def _denied(message: str) -> bool:
    """Older servers say HTTP 500 where they mean 401."""
    return "Unauthenticated" in message or "PermissionDenied" in message


def _message(error: Any) -> str:
    """What the server says, without headers, which may hold secrets."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body or ""
    try:
        told = json.loads(body)
        said = told.get("message") or told.get("error") or error.reason
    except (ValueError, AttributeError):
        said = error.reason
    return _brief(str(said))


def _brief(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 400 else f"{line[:400]} …"
