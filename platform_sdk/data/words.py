"""Words of all scripts, for regular expressions."""

from __future__ import annotations

import unicodedata

# Up to U+FFFF: with characters beyond, Python's class of characters is a slow list of ranges instead of a table.
_MARKS = "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code)).startswith("M"))
WORD = rf"\w+(?:[{_MARKS}\u200c\u200d]+\w*)*"
"""A word. Python's ``\\w`` lacks combining marks, which are the vowels of Hindi, Tamil or Thai, and the two joiners."""
