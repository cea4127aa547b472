"""Word characters of all scripts, for regular expressions."""

from __future__ import annotations

import unicodedata

_MARKS = "".join(
    chr(code)
    for block in (range(0x300, 0x20000), range(0xE0100, 0xE01F0))
    for code in block
    if unicodedata.category(chr(code)).startswith("M")
)
WORD = rf"[\w{_MARKS}\u200c\u200d]"
"""A character of a word. Python's ``\\w`` lacks combining marks, which are the vowels of Hindi, Tamil or Thai, and the
two joiners between letters."""
