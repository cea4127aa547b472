"""Sections ``<tag>…</tag>`` and marked lines in a policy's text. Tags are lower case without white space inside."""

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


def without_thoughts(text: str) -> str:
    """Return a policy's text without a reasoning model's thoughts; empty if they do not end."""
    if "<think>" not in text and "</think>" not in text:
        return text
    return text.rpartition("</think>")[2].lstrip() if "</think>" in text else ""


def marked(text: str, marker: str) -> str | None:
    """Return the text after a marker on its line, ignoring case and white space; None if there is none."""
    words = r"\s*".join(re.escape(word) for word in marker.split())
    # Strip white space by hand: a pattern between ^ and $ would take quadratic time.
    found = re.search(rf"^[^\S\n]*+{words}[ \t]*+(\S.*)$", text, re.IGNORECASE | re.MULTILINE)
    return found[1].rstrip() if found else None
