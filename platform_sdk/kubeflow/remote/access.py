"""Address and credentials of a Kubeflow Pipelines server, from flags and the environment, checked first.

Invalid values are refused with the name of their setting, since the client would fail later or print a secret.
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from platform_sdk.config.errors import UserError
from platform_sdk.config.urls import check_address
from platform_sdk.credentials import has_credentials

HOST, UI_HOST = "KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT"
TOKEN, COOKIES = "KF_PIPELINES_TOKEN", "KF_PIPELINES_COOKIES"
TOKEN_FILE = "KF_PIPELINES_SA_TOKEN_PATH"
CA_FILE = "KF_PIPELINES_SSL_CA_CERT"
PROJECTED_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
IN_CLUSTER = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
SENDABLE = re.compile(r"[ -~]+")  # in an HTTP header


@dataclass(frozen=True)
class TokenFile:
    """Credentials for kfp: a token that is read for every call, since the kubelet replaces it."""

    path: Path
    name: str

    def read(self) -> str:
        """Return the token.

        Raises:
            UserError: the file cannot be read, or holds no token.
        """
        try:
            text = self.path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise UserError(f"{self.name}: {self.path} holds the token and cannot be read: {why}") from None
        if not text.strip():
            raise UserError(f"{self.name}: {self.path} is empty, and should hold a token")
        return _sendable(text, f"{self.name}: {self.path}")

    def refresh_api_key_hook(self, configuration: Any) -> None:
        """Give the client's configuration the present token."""
        configuration.api_key["authorization"] = self.read()


@dataclass(frozen=True)
class Access:
    """API URL, UI URL and credentials of a server."""

    host: str
    pages: str
    token: str | None = field(repr=False)
    token_file: TokenFile | None
    cookies: str | None = field(repr=False)
    ca_file: str | None


def access(host: str | None) -> Access:
    """Return the access by the command line, else by the environment, else to this pod's cluster.

    Raises:
        UserError: there is no host; an address, a secret or a file is invalid.
    """
    given, name = (host, "--host") if host else (os.environ.get(HOST), HOST)
    if not given and not IN_POD.exists():
        raise UserError(f"no address of Kubeflow Pipelines: give --host URL, or set {HOST}", code="cluster.no-address")
    address = _address(given, name) if given else IN_CLUSTER
    pages = os.environ.get(UI_HOST)
    token = _secret(TOKEN)
    return Access(
        host=address,
        # Inside the cluster the UI's address is unknown; the gateway serves the UI under this path.
        pages=_address(pages, UI_HOST) if pages else address if given else "/pipeline",
        token=token,
        token_file=None if token else _token_file(),
        cookies=_secret(COOKIES),
        ca_file=_ca_file(),
    )


def _address(text: str, name: str) -> str:
    """Return a URL without a trailing slash, by default with https."""
    url = text.strip()
    url = (url if "://" in url else f"https://{url}").rstrip("/")
    if has_credentials(url):
        raise UserError(f"{name} holds user:password@, which is never sent; remove it, and set {TOKEN} or {COOKIES}")
    try:
        parts = urlsplit(check_address(url))
        good = parts.scheme in ("http", "https") and not (parts.query or parts.fragment)  # of a page of the UI
    except ValueError:
        good = False
    if not good or not SENDABLE.fullmatch(url) or " " in url:
        raise UserError(f"{name} {text!r} is not an address; give it as https://kubeflow.example/pipeline")
    return url


def _secret(name: str) -> str | None:
    value = os.environ.get(name)
    return _sendable(value, name) if value and value.strip() else None


def _sendable(value: str, name: str) -> str:
    """Return a secret without its trailing newline; an error does not contain the secret."""
    value = value.strip()
    if not SENDABLE.fullmatch(value):
        raise UserError(
            f"{name} holds characters that are not allowed in an HTTP header (line ends, or others that are not "
            "printable ASCII); set it again"
        )
    return value


def _token_file() -> TokenFile | None:
    given = os.environ.get(TOKEN_FILE)
    if not given and not PROJECTED_TOKEN.exists():
        return None
    file = TokenFile(Path(given), TOKEN_FILE) if given else TokenFile(PROJECTED_TOKEN, "the pod's token")
    file.read()
    return file


def _ca_file() -> str | None:
    given = os.environ.get(CA_FILE)
    if not given:
        return None
    try:
        ssl.create_default_context(cafile=given)
    except ssl.SSLError as error:
        raise UserError(f"{CA_FILE}: {given} holds no certificates in PEM format") from error
    except OSError as error:
        raise UserError(f"{CA_FILE}: {given} cannot be read: {error.strerror}") from error
    return given
