"""Text of others, made safe to be shown: ids, titles, answers and logs may hold characters that steer a terminal."""

from __future__ import annotations

import logging
import re

from platform_sdk.config.credentials import without_credentials

# Control characters but tab and newline, and those that reverse the direction of what follows.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return ``text`` with characters that steer a terminal written as ``\x1b``; lone surrogates too."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class DisplayFormatter(logging.Formatter):
    """Formats log lines, tracebacks included, without steering characters and without passwords in URLs."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(without_credentials(super().format(record)))


def log_to_stderr(level: int, form: str = logging.BASIC_FORMAT) -> None:
    """Have this process's log lines written to standard error by ``DisplayFormatter``."""
    handler = logging.StreamHandler()
    handler.setFormatter(DisplayFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
