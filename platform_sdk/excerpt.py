"""Values as error messages show them: on one line, printable, and cut with their length."""

from __future__ import annotations

LONGEST_VALUE = 80


def excerpt(value: object) -> str:
    """Return ``value`` as Python writes it, cut to ``LONGEST_VALUE`` characters."""
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        return f"{value[:LONGEST_VALUE]!r}… ({len(value)} characters)"
    return printable(repr(value))


def printable(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return ``text`` with escapes for what a terminal cannot show, cut to ``longest`` characters."""
    kept = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:longest])
    return kept if len(text) <= longest else f"{kept}… ({len(text)} characters)"
