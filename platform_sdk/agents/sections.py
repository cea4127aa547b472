"""Sections ``<tag>…</tag>`` in a policy's text. A tag is written exactly so: lower case, no white space inside."""

from __future__ import annotations

import re

_WORD = re.compile(r"\S")


def section(text: str, tag: str) -> str | None:
    """Return the content of the section without the white space around it; None if it is missing or repeated."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    if text.count(opening) != 1 or text.count(closing) != 1:
        return None
    content, end, _ = text.partition(opening)[2].partition(closing)
    return content.strip() if end else None


def sections(text: str, tag: str, tags: re.Pattern[str]) -> list[str] | None:
    """Return the contents of the sections that make up ``text``; None if it is anything else.

    Args:
        tags: matches every tag of the grammar; none may occur inside a section.
    """
    contents: list[str] = []
    opening, closing = f"<{tag}>", f"</{tag}>"
    position = 0
    # Search by position: copying the remaining text for every section would take quadratic time.
    while position < len(text):
        start = position + len(opening)
        end = text.find(closing, start)
        if not text.startswith(opening, position) or end < 0 or tags.search(text, start, end):
            return None
        contents.append(text[start:end].strip())
        following = _WORD.search(text, end + len(closing))
        position = following.start() if following else len(text)
    return contents
