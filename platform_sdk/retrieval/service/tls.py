"""The service's certificate and private key."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from platform_sdk.config.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Certificate:
    """A certificate with its chain, and its private key: PEM files, which may be renewed in place."""

    certificate: Path
    key: Path

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the certificate into ``context`` for new connections.

        Raises:
            UserError: a file is missing or not PEM, or the key is encrypted or does not match the certificate.
        """
        for option, path in (("--tls-cert", self.certificate), ("--tls-key", self.key)):
            try:
                path.read_bytes()
            except OSError as error:
                raise UserError(f"{option} {path}: {error.strerror}; give a PEM file that can be read") from error
        try:
            context.load_cert_chain(self.certificate, self.key, password="")  # no prompt on the terminal
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise UserError(
                    f"{self.key} is not the private key of {self.certificate}; give the pair that was issued together"
                ) from error
            raise UserError(
                f"{self.certificate} and {self.key} cannot be loaded ({error.reason or error}); both must be PEM: the "
                "certificate with its chain, and its key without a passphrase"
            ) from error

    def check(self) -> None:
        """Check that the certificate can be loaded; see ``load_into``."""
        self.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    @property
    def version(self) -> tuple[int, ...]:
        """Return a value that changes when the files are renewed; empty while a file is missing."""
        try:
            return tuple(path.stat().st_mtime_ns for path in (self.certificate, self.key))
        except OSError:
            return ()


class Renewal:
    """Reloading of a renewed certificate into a running server's context."""

    def __init__(self, certificate: Certificate, context: ssl.SSLContext) -> None:
        self._certificate, self._context = certificate, context
        self._version = certificate.version

    def look(self) -> None:
        """Load the files if they changed. While they do not match, keep the former pair."""
        version = self._certificate.version
        if not version or version == self._version:
            return
        self._version = version
        try:
            self._certificate.check()
            self._certificate.load_into(self._context)
        except UserError as error:
            log.error("keeping the former certificate: %s", error)
        else:
            log.warning("%s was renewed and is used from now on", self._certificate.certificate)
