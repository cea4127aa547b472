"""Safe display of untrusted text: ids, titles, answers and logs may contain terminal control characters."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable

from platform_sdk.credentials import without_credentials

# Control characters except tab and newline, and bidirectional control characters.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


LONGEST_VALUE = 80


def printable(text: str) -> str:
    r"""Return ``text`` with control characters and lone surrogates escaped (``\x1b``)."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def encodable(text: str) -> str:
    """Return ``text`` with ``?`` for lone surrogates, which neither files nor tokenizers accept."""
    return text.encode(errors="replace").decode()


def shortened(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return ``text`` on one line, unprintable characters escaped, cut to ``longest`` characters."""
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
    """Formatter that removes control characters and passwords in URLs, also from tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(without_credentials(super().format(record)))


def log_to_stderr(level: int, form: str = logging.BASIC_FORMAT) -> None:
    """Log to standard error with ``DisplayFormatter``."""
    handler = logging.StreamHandler()
    handler.setFormatter(DisplayFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
