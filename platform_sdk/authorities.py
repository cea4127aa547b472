"""TLS contexts of HTTP clients, with the certificate authorities of an environment variable."""

from __future__ import annotations

import functools
import os
import ssl

from platform_sdk.errors import UserError


def client_tls(variable: str) -> ssl.SSLContext:
    """Return a TLS context with the default authorities and those in the PEM file that ``variable`` names.

    Raises:
        UserError: the file, or the file that SSL_CERT_FILE names, cannot be read or is not PEM.
    """
    return _context(variable, os.environ.get(variable, ""))


def untrusted(error: Exception, address: str, variable: str) -> UserError | None:
    """Return the error for a certificate that is not trusted; None for another error of a request."""
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):  # httpx keeps only the text of the reason
        return None
    return UserError(
        f"{address}: its certificate is not trusted ({error}); name the file (PEM) of the authority that issued it in "
        f"the environment variable {variable}, and address it by a name in it",
        code="retrieval.certificate",
    )


@functools.cache
def _context(variable: str, authority: str) -> ssl.SSLContext:
    """Return the context, cached since reading all certificates takes longer than a request."""
    import httpx

    try:
        context = httpx.create_ssl_context()
    except OSError as error:  # httpx reads SSL_CERT_FILE
        path = os.environ.get("SSL_CERT_FILE", "")
        raise UserError(f"SSL_CERT_FILE: {path}: {error.strerror or error}; name a PEM file") from error
    if authority:
        try:
            context.load_verify_locations(authority)
        except OSError as error:  # ssl.SSLError too
            raise UserError(f"{variable}: {authority}: {error.strerror or error}; name a PEM file") from error
    return context
