"""EC keys (PEM) and signatures: ECDSA with SHA-256 over canonical JSON, base64."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.config.errors import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey


def canonical(content: Mapping[str, Any]) -> bytes:
    """Return the canonical JSON of an object: sorted keys, no spaces, UTF-8."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class SigningKey:
    """A private EC key in a PEM file without a passphrase.

    Raises:
        UserError: the file cannot be read or holds no such key.
    """

    def __init__(self, path: Path) -> None:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        remedy = "make one with openssl ecparam -name prime256v1 -genkey -noout -out FILE"
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}; {remedy}") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise UserError(f"{path}: is no private key in PEM without a passphrase; {remedy}") from error
        if not isinstance(key, EllipticCurvePrivateKey):
            raise UserError(f"{path}: is no EC key; {remedy}")
        self._key = key
        self.public = pem(key.public_key())
        self.fingerprint = fingerprint(key.public_key())

    def sign(self, content: Mapping[str, Any]) -> str:
        """Return the signature of an object."""
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        return base64.b64encode(self._key.sign(canonical(content), ECDSA(SHA256()))).decode()


def public_key(content: bytes, where: str) -> EllipticCurvePublicKey:
    """Return a public EC key from PEM; ``where`` begins the error's message.

    Raises:
        UserError: the content is no such key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{where}: holds no public key in PEM; write it with openssl ec -in KEY -pubout") from error
    if not isinstance(key, EllipticCurvePublicKey):
        raise UserError(f"{where}: holds no public EC key; write it with openssl ec -in KEY -pubout")
    return key


def is_signed(content: Mapping[str, Any], signature: str, key: EllipticCurvePublicKey) -> bool:
    """Return True if a signature of an object was made with the private key of ``key``."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        key.verify(base64.b64decode(signature, validate=True), canonical(content), ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def pem(key: EllipticCurvePublicKey) -> str:
    """Return a public key as PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def fingerprint(key: EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of a public key's DER form."""
    import hashlib

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
