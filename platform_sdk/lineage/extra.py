"""Packages of the extra ``audit``: CycloneDX, OpenLineage and model-signing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from platform_sdk.errors import UserError


@contextmanager
def audit_packages() -> Iterator[None]:
    """Import packages of the extra in the context.

    Raises:
        UserError: a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"the package {error.name} is not installed; run: pip install hopforge[audit]") from error


def require_audit_packages() -> None:
    """Raise a UserError if the extra is not installed, before any file is written."""
    with audit_packages():
        for package in ("cyclonedx.validation.json", "jsonschema", "model_signing", "openlineage.client"):
            import_module(package)
