"""Access to the log of a folder of runs: the file next to the store, or the service in ``HOPFORGE_LOG``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from platform_sdk.authorities import client_tls, untrusted
from platform_sdk.config.errors import UserError
from platform_sdk.credentials import without_credentials
from platform_sdk.endpoints import fits_header, opening
from platform_sdk.tracking.log.chain import FILE_NAME, TEAM_HEADER, Chain, Log, LogEntry, Statement
from platform_sdk.tracking.log.checkpoint import Checkpoint, checkpoint_of
from platform_sdk.tracking.store import folder_uri

if TYPE_CHECKING:
    import httpx

SERVICE = "HOPFORGE_LOG"
TOKEN = "HOPFORGE_LOG_TOKEN"
AUTHORITY = "HOPFORGE_LOG_CA"
"""Environment variable with a PEM file of additional certificate authorities."""
SECONDS = 10.0
PAGE = 1000
M = TypeVar("M", LogEntry, Checkpoint)


def open_log(folder: Path) -> AnyLog:
    """Return the log of the runs in ``folder``.

    Raises:
        UserError: ``HOPFORGE_LOG`` is not the address of a service, or the token cannot be sent.
    """
    address = os.environ.get(SERVICE, "")
    if not address:
        uri = os.environ.get("MLFLOW_TRACKING_URI") or folder_uri(folder)
        local = uri.startswith("sqlite:///")
        return LocalLog((Path(uri.removeprefix("sqlite:///")).parent if local else folder.resolve()) / FILE_NAME)
    if not address.startswith(("http://", "https://")):
        raise UserError(f"{SERVICE}={address}: is no address; set it to http(s)://HOST:PORT of hopforge serve log")
    token = os.environ.get(TOKEN, "").strip()
    if not fits_header(token):
        raise UserError(f"the token in {TOKEN} has characters that an HTTP header must not hold; set it again")
    return RemoteLog(address.rstrip("/"), token)


class LocalLog:
    """Log file next to the store; ``name`` is its path, for messages."""

    team = ""

    def __init__(self, path: Path) -> None:
        self._log = Log(path)
        self.path, self.name = path, str(path)

    def send(self, statement: Statement) -> LogEntry:
        """Append a statement; a repeated statement returns the first entry."""
        return self._log.append(statement)

    def read(self) -> Chain:
        """Return all entries, with the faults of the chain."""
        return self._log.read()

    def checkpoint(self) -> Checkpoint:
        chain = self.read()
        if chain.faults:
            raise UserError(f"{self.name}: {chain.faults[0]}, so no checkpoint is written; restore it from a copy")
        return checkpoint_of(chain.entries)

    def named(self, run_dir: Path) -> str:
        """Return the name of a run directory in entries."""
        folder = self.path.resolve().parent
        return str(run_dir.relative_to(folder) if run_dir.is_relative_to(folder) else run_dir)

    def located(self, name: str) -> Path:
        """Return the run directory of a name in entries."""
        return self.path.resolve().parent / name


class RemoteLog:
    """Log service; ``name`` is its address without a password, for messages.

    Every team has its own volume, so only the run directories in entries of ``team``, which is known after ``read``,
    are paths here.
    """

    def __init__(self, address: str, token: str) -> None:
        self._address, self.name, self.team = address, without_credentials(address), ""
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def send(self, statement: Statement) -> LogEntry:
        return self._parsed(LogEntry, self._request("POST", "/v1/entries", json=statement.content()).content)

    def read(self) -> Chain:
        chain, number = Chain(), 0
        while True:
            answer = self._request("GET", "/v1/entries", params={"start": number, "count": PAGE})
            if TEAM_HEADER not in answer.headers:
                raise self._not_a_service()
            self.team = answer.headers[TEAM_HEADER]
            lines = answer.content.split(b"\n")[:-1]
            chain.extend(iter(lines))
            number += len(lines)
            if not lines:
                return chain

    def checkpoint(self) -> Checkpoint:
        return self._parsed(Checkpoint, self._request("GET", "/v1/checkpoint").content)

    def named(self, run_dir: Path) -> str:
        return str(run_dir)

    def located(self, name: str) -> Path:
        return Path(name)

    def _request(self, method: str, path: str, **content: Any) -> httpx.Response:
        import httpx

        tls = client_tls(AUTHORITY)
        with opening(self.name):
            client = httpx.Client(headers=self._headers, timeout=SECONDS, verify=tls)
        try:
            with client:
                answer = client.request(method, self._address + path, **content)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            if (refusal := untrusted(error, self.name, AUTHORITY)) is not None:
                raise refusal from error
            reason = str(error) or type(error).__name__
            if isinstance(error, httpx.InvalidURL):  # not quoted: it may hold a part of the password
                reason = "its URL is not valid; in a password, write / as %2F"
            raise UserError(f"{self.name}: the log service cannot be reached ({reason}); check {SERVICE}") from error
        if answer.status_code == 401:
            raise UserError(f"{self.name}: the log service refuses the token; set {TOKEN} to the team's token")
        if answer.status_code != 200:
            raise UserError(f"{self.name}: the log service answers {answer.status_code}: {answer.text[:500]}")
        return answer

    def _parsed(self, kind: type[M], content: bytes) -> M:
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            raise self._not_a_service() from error

    def _not_a_service(self) -> UserError:
        return UserError(f"{self.name}: is no log service of hopforge; check {SERVICE}")


AnyLog = LocalLog | RemoteLog
