"""Special tokens of a tokenizer: only chat templates write them; the same characters in a text stay ordinary text.

A text of a user, a corpus or another model may contain ``<|im_end|>``. ``as_text`` marks such spellings before the text
is rendered, and ``encode`` encodes marked spellings as ordinary text. Texts without such spellings are unchanged.
"""

from __future__ import annotations

import re
import secrets
from functools import lru_cache
from typing import Any

_MARK = f"{secrets.randbits(64):020d}"
"""Mark inside a spelling: random, so that no text contains it, and digits, which templates do not change."""
_THOUGHTS = frozenset({"<think>", "</think>"})
"""Tags that a policy writes itself, like function calls; special tokens in some tokenizers."""


@lru_cache(maxsize=8)
def special_tokens(tokenizer: Any) -> frozenset[int]:
    """Return the special tokens, including the ends of turn and of sequence."""
    added = tokenizer.added_tokens_decoder.items()
    return frozenset([*tokenizer.all_special_ids, *(id for id, token in added if token.special)])


def as_text(tokenizer: Any, text: str) -> str:
    """Return a given text in which special tokens are text for ``encode``; ``unmarked`` returns the given text."""
    spellings = _spellings(tokenizer)
    while spellings.search(text):  # again, since one spelling may contain another
        text = spellings.sub(lambda found: f"{found[0][0]}{_MARK}{found[0][1:]}", text)
    return text


def unmarked(text: str) -> str:
    """Return a text as it was before ``as_text``."""
    return text.replace(_MARK, "")


def encode(tokenizer: Any, text: str) -> list[int]:
    """Return a text's tokens, without any special token around them."""
    parts = text.split(_MARK)
    return [id for part in parts for id in tokenizer(part, add_special_tokens=False)["input_ids"]]


@lru_cache(maxsize=8)
def _spellings(tokenizer: Any) -> re.Pattern[str]:
    """Return the pattern of special tokens of two characters or more, the longest first."""
    texts = {str(tokenizer.convert_ids_to_tokens(id)) for id in special_tokens(tokenizer)} - _THOUGHTS
    known = sorted((text for text in texts if len(text) > 1), key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, known)) or r"(?!)")
