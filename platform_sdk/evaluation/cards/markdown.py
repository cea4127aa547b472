"""Parts of a card: Markdown for a panel about 480 pixels (65 characters) wide.

The panel has no padding between the columns of a table and breaks lines at spaces only. So cells are separated by hard
spaces, and long words may break at zero-width spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from platform_sdk.display import printable

GAP = "&nbsp;&nbsp;"
LONGEST_TEXT = 110
LONGEST_WORD = 60
LONGEST_WORD_IN_CELL = 16
DIGEST = 12
_MARKUP = re.compile(r"([\\`*_{}\[\]#|~$])")
_BREAK = "\u200b"


def card(title: str, sentence: str, *blocks: str) -> str:
    """Return a card: title line, one sentence, and the non-empty blocks, with space between tables."""
    parts = [f"## {plain(title)}", sentence]
    for block in filter(None, blocks):
        if block.startswith("|") and parts[-1].startswith("|"):
            parts.append("&nbsp;")
        parts.append(block)
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0) -> str:
    """Return a table whose last ``numbers`` columns are right-aligned, or an empty text without rows."""
    lines = [_row(row, numbers) for row in rows]
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join([_row(head, numbers), f"| {' | '.join(rule)} |", *lines]) if lines else ""


def _row(cells: Sequence[str], numbers: int) -> str:
    texts, figures = cells[: len(cells) - numbers], cells[len(cells) - numbers :]
    spaced = [*(f"{text}{GAP}" for text in texts[:-1]), *texts[-1:], *(f"{GAP}{figure}" for figure in figures)]
    return f"| {' | '.join(spaced)} |"


def plain(text: str, longest: int = LONGEST_TEXT, longest_word: int = LONGEST_WORD) -> str:
    """Return untrusted text on one line, shortened, with markup escaped and long words breakable."""
    line = " ".join(printable(text).split())
    line = line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"
    words = (word if len(word) <= longest_word else _breakable(word, longest_word) for word in line.split(" "))
    return _MARKUP.sub(r"\\\1", " ".join(words)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cell(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return untrusted text for a table cell, which may be narrow."""
    return plain(text, longest, LONGEST_WORD_IN_CELL)


def _breakable(word: str, longest: int) -> str:
    """Return a word with break points after punctuation and inside long parts."""
    parts = re.sub(r"(?<=[\W_])(?=\w)", _BREAK, word).split(_BREAK)
    return _BREAK.join(part[start : start + longest] for part in parts for start in range(0, len(part), longest))


def digest(value: str) -> str:
    """Return the beginning of a digest as code; a dash for an empty one."""
    return f"`{value[:DIGEST]}`" if value else "–"


def number(value: float | None) -> str:
    """Return a float with four digits, an integer with separators, a dash for None."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
