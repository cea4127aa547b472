"""TLS contexts of HTTP clients, with the certificate authorities of an environment variable."""

from __future__ import annotations

import functools
import os
import ssl

from platform_sdk.errors import UserError


def client_tls(variable: str) -> ssl.SSLContext:
    """Return a TLS context with the default authorities and those in the PEM file that ``variable`` names.

    Raises:
        UserError: the file cannot be read or is not PEM.
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

    context = httpx.create_ssl_context()
    if authority:
        try:
            context.load_verify_locations(authority)
        except OSError as error:  # ssl.SSLError too
            raise UserError(f"{variable}: {authority}: {error.strerror or error}; name a PEM file") from error
    return context
