"""Keys and a certificate authority made with openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from platform_sdk.retrieval.service.tls import Certificate


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make_key(private: Path, public: Path | None = None, curve: str = "prime256v1") -> None:
    """Write a key, and its public part if there is a file for it."""
    openssl("ecparam", "-name", curve, "-genkey", "-noout", "-out", private)
    if public is not None:
        openssl("ec", "-in", private, "-pubout", "-out", public)


@dataclass(frozen=True)
class Authority:
    """An authority of its own, in a folder."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    def create(self) -> None:
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2),
            *("-subj", "/CN=test authority", "-keyout", self.folder / "ca.key", "-out", self.certificate),
        )

    def issue(self, name: str, address: str = "IP:127.0.0.1") -> Certificate:
        issued = Certificate(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 1),
            *("-subj", f"/CN={name}", "-addext", f"subjectAltName={address}", "-addext", "basicConstraints=CA:FALSE"),
            *("-CA", self.certificate, "-CAkey", self.folder / "ca.key"),
            *("-keyout", issued.key, "-out", issued.certificate),
        )
        return issued
