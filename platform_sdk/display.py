"""Text of others, made safe to be shown: ids, titles, answers and logs may hold characters that steer a terminal."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable

from platform_sdk.credentials import without_credentials

# Control characters but tab and newline, and those that reverse the direction of what follows.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


LONGEST_VALUE = 80


def printable(text: str) -> str:
    r"""Return ``text`` with characters that steer a terminal written as ``\x1b``; lone surrogates too."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shortened(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return ``text`` on one line, with escapes for what a terminal cannot show, cut to ``longest`` characters."""
    kept = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:longest])
    return kept if len(text) <= longest else f"{kept}… ({len(text)} characters)"


def excerpt(value: object) -> str:
    """Return ``value`` as Python writes it, cut to ``LONGEST_VALUE`` characters, for an error message."""
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        return f"{value[:LONGEST_VALUE]!r}… ({len(value)} characters)"
    return shortened(repr(value))


def near_names(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean A, B?`` with up to three known names near to ``name`` in any case, or nothing."""
    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name[:LONGEST_VALUE].casefold(), folded, n=3)
    return f"; did you mean {', '.join(shortened(folded[each]) for each in near)}?" if near else ""


class DisplayFormatter(logging.Formatter):
    """Formats log lines, tracebacks included, without steering characters and without passwords in URLs."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(without_credentials(super().format(record)))


def log_to_stderr(level: int, form: str = logging.BASIC_FORMAT) -> None:
    """Have this process's log lines written to standard error by ``DisplayFormatter``."""
    handler = logging.StreamHandler()
    handler.setFormatter(DisplayFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
