"""Output streams of the command line, plain text output, and arguments in any locale.

Text is printed by ``say`` or ``Terminal`` and JSON by ``say_json``; all three escape control characters.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from contextlib import suppress
from typing import Any

import typer

from platform_sdk.credentials import strip_credentials, without_credentials
from platform_sdk.display import printable
from platform_sdk.errors import UserError

ESCAPED = "hopforge.escaped"
"""Encoding error handler that writes JSON escapes, so that JSON output is valid in any locale."""


def open_streams() -> None:
    """Make standard output and error escape characters that the locale lacks; replace a closed stream by /dev/null."""
    codecs.register_error(ESCAPED, _escaped)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPED)


def close_streams() -> None:
    """Flush standard output, so that a full disk is reported as an error of the command.

    Raises:
        OSError: the output cannot be written.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # closed by its reader, e.g. head
        _discard_output()
    except OSError:
        _discard_output()
        raise


def say(text: object, *, err: bool = False) -> None:
    """Print text without control characters and passwords in URLs."""
    typer.echo(printable(without_credentials(str(text))), err=err)


def say_json(content: Any, *, indent: int | None = None) -> None:
    """Print a JSON document without passwords in URLs; all characters but ASCII are escaped, control characters too.

    Args:
        content: plain values, or a pydantic model, whose infinite numbers become null.
        indent: spaces of a level; without it the document is one line.
    """
    plain = json.loads(content.model_dump_json()) if hasattr(content, "model_dump_json") else content
    typer.echo(json.dumps(strip_credentials(plain), indent=indent))


def text_argument(text: str, what: str) -> str:
    """Return an argument as text, also if the locale cannot represent it.

    Raises:
        UserError: the argument is not UTF-8.
    """
    try:
        return os.fsencode(text).decode()
    except UnicodeError as error:
        raise UserError(f"{what} is not valid UTF-8 text; type it again in a UTF-8 terminal") from error


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4)), error.end


def _discard_output() -> None:
    """Redirect standard output to /dev/null, so that the interpreter's flush at exit succeeds."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
