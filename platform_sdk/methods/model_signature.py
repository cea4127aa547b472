"""Signature of a directory in the format of OpenSSF's model-signing, with an EC key and without network access."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.errors import UserError
from platform_sdk.lineage.extra import audit_packages
from platform_sdk.tracking.log.keys import SigningKey, public_key

if TYPE_CHECKING:
    from model_signing.hashing import Config

SIGNATURE = "model.sig"


def check_signing_key(key: Path) -> None:
    """Check that a directory can be signed with a key.

    Raises:
        UserError: the extra ``audit`` is not installed, or the file is no private EC key of a supported curve.
    """
    with audit_packages():
        from model_signing.signing import Config
    SigningKey(key)
    try:
        Config().use_elliptic_key_signer(private_key=key)
    except ValueError as error:
        raise UserError(f"{key}: {str(error).lower()}; use a key of the curve P-256, P-384 or P-521") from error


def sign_directory(directory: Path, key: Path) -> None:
    """Sign all files in a directory with a checked key; the signature is a file in it and does not cover itself."""
    with audit_packages():
        from model_signing.signing import Config

    config = Config().set_hashing_config(_hashing())
    config.use_elliptic_key_signer(private_key=key).sign(directory, directory / SIGNATURE)


def signature_fault(directory: Path, key: Path) -> str:
    """Return why the signature in a directory does not cover its files; empty if it does.

    Args:
        directory: The signed directory.
        key: The signer's public EC key (PEM).

    Raises:
        UserError: the extra ``audit`` is not installed, or the file is no public EC key.
    """
    with audit_packages():
        from model_signing.verifying import Config

    try:
        public_key(key.read_bytes(), str(key))
    except OSError as error:
        raise UserError(f"{key}: cannot be read: {error.strerror}; name the signer's public key (PEM)") from error
    try:
        config = Config().use_elliptic_key_verifier(public_key=key).set_hashing_config(_hashing())
        config.verify(directory, directory / SIGNATURE)
    except Exception as error:  # the errors of several libraries, for a signature of any content
        return " ".join(str(error).split())[:300] or type(error).__name__
    return ""


def _hashing() -> Config:
    from model_signing.hashing import Config

    return Config().set_ignored_paths(paths=[SIGNATURE], ignore_git_paths=False)
