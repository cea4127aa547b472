"""Errors of MLflow stores as one sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from platform_sdk.credentials import without_credentials
from platform_sdk.errors import UserError
from platform_sdk.tracking.server import REMEDY

LENGTH = 400
REFUSED = re.compile(r"API request to endpoint (?P<path>\S+) failed with error code (?P<code>\d+)")
"""Message of MLflow's client for an answer that is not from MLflow's API, followed by the whole answer."""


def reason(error: Exception) -> str:
    """Return the cause of an error of MLflow in one line, without passwords."""
    from sqlalchemy.exc import SQLAlchemyError

    text = without_credentials(str(getattr(error, "message", error)))
    refused = REFUSED.search(text)
    if isinstance(error, SQLAlchemyError):
        return text.partition("\n")[0]  # the statement follows
    if isinstance(error, NotImplementedError):  # MLflow's client compares versions
        return f"{text}; {REMEDY}"
    if refused is None:
        line = " ".join(text.split())
        return line if len(line) <= LENGTH else f"{line[:LENGTH]}…"
    answer = f"HTTP {refused['code']} for {refused['path']}"
    if refused["code"] in ("404", "405"):
        return f"{answer}, which this server does not have; {REMEDY}"
    return answer


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Raise MLflow's errors as a ``UserError`` that names the store.

    Raises:
        UserError: the store refused or could not be reached.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, NotImplementedError) as error:
        raise UserError(f"MLflow store {without_credentials(uri)}: {reason(error)}") from error
    except ModuleNotFoundError as error:  # SQLAlchemy imports a database's driver when it connects
        raise UserError(
            f"MLflow store {without_credentials(uri)}: the driver {error.name} is not installed; run: pip install "
            f"{error.name}, or for postgresql+psycopg2:// pip install hopforge[cluster]"
        ) from error
