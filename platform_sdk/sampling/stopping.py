"""End of a completion: end-of-sequence tokens, and stop strings in the decoded text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class StopCondition:
    """Detector of stop strings that does not decode at every token.

    A stop string ends with a token that contains its last character. So a table per set of stop strings marks the
    tokens that may complete one, and the text is decoded only after these.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, ends: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._pieces: list[str] | None = None
        self._tables: dict[tuple[str, ...], npt.NDArray[np.bool_]] = {}
        self.ends = ends

    def table(self, stop: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Return a mask of the tokens that may complete a stop string, shape (vocabulary,)."""
        if stop not in self._tables:
            if self._pieces is None:
                self._pieces = self._tokenizer.batch_decode([[i] for i in range(self._vocabulary)])
            # A token that is only part of a character may complete any character; in a tokenizer that joins words with
            # spaces, any token may complete a trailing space.
            last = tuple({text[-1] for text in stop} | {"\ufffd"})
            anything = any(text[-1].isspace() for text in stop)
            marks = [anything or any(mark in piece for mark in last) for piece in self._pieces]
            self._tables[stop] = np.array(marks, dtype=np.bool_)
        return self._tables[stop]

    def stops(self, token_ids: Sequence[int], stop: tuple[str, ...], table: npt.NDArray[np.bool_] | None) -> bool:
        """Return True if the last token ends a completion; ``table`` belongs to ``stop`` (None: no stop string)."""
        if token_ids[-1] in self.ends:
            return True
        if table is None or not table[token_ids[-1]]:
            return False
        text = self._tokenizer.decode(token_ids, skip_special_tokens=False)
        return any(one in text for one in stop)


def end_tokens(tokenizer: Any, generation_config: Any = None) -> frozenset[int]:
    """Return the end-of-sequence tokens of the tokenizer and the model's generation config."""
    named = [tokenizer.eos_token_id]
    configured = getattr(generation_config, "eos_token_id", None)
    named += configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in named if token is not None)
