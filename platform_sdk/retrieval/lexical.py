"""BM25 over a corpus, as a sparse matrix of words and texts.

The weight of a word in a text does not depend on the query, so a search is a product of two sparse matrices.
``bm25s`` stores the same matrix, but ranks one query at a time, while ``linked`` needs the scores of certain texts.
``tests/retrieval/test_lexical.py`` compares the scores with ``bm25s``.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from platform_sdk.data.words import WORD
from platform_sdk.records import Passage
from platform_sdk.retrieval.csr import row_entries

K1, B = 1.2, 0.75
COMMON_SHARE = 0.1
"""Words in more than this share of the texts are left out: they take most of a search's time and affect no ranking."""
COMMON_MINIMUM = 100
"""Words in at most this number of texts are always kept."""

_WORD = re.compile(WORD)


def words(text: str) -> list[str]:
    """Return the words of a text in order, case-folded, with Unicode normalised."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def titled_texts(passages: Sequence[Passage]) -> list[str]:
    """Return the texts of passages, each with its title twice, to give title words more weight."""
    return [f"{passage.title} {passage.title} {passage.text}" for passage in passages]


@dataclass(frozen=True)
class Lexical:
    """BM25 weights: ``weights[word, text]``. Words are numbered in alphabetical order."""

    numbers: dict[str, int]
    rarity: np.ndarray  # inverse document frequency of each word
    weights: sparse.csr_matrix

    @cached_property
    def by_text(self) -> sparse.csr_matrix:
        """The weights by text: ``by_text[text, word]``."""
        return self.weights.T.tocsr()

    @classmethod
    def build(cls, texts: Sequence[str]) -> Lexical:
        """Return the weights of all words of ``texts``."""
        counts = [Counter(words(text)) for text in texts]
        lengths = np.array([own.total() for own in counts], dtype=np.float64)
        numbers = {word: number for number, word in enumerate(sorted({word for own in counts for word in own}))}
        rows = np.array([numbers[word] for own in counts for word in own], dtype=np.int64)
        columns = np.repeat(np.arange(len(counts)), [len(own) for own in counts])
        times = np.array([times for own in counts for times in own.values()], dtype=np.float64)
        frequencies = np.bincount(rows, minlength=len(numbers))
        rarity = np.log1p((len(texts) - frequencies + 0.5) / (frequencies + 0.5))
        relative = lengths / lengths.mean() if lengths.any() else lengths
        values = rarity[rows] * times * (K1 + 1) / (times + K1 * (1 - B + B * relative[columns]))
        kept = frequencies[rows] <= max(COMMON_SHARE * len(texts), COMMON_MINIMUM)
        shape = (len(numbers), len(texts))
        weights = sparse.csr_matrix((values[kept], (rows[kept], columns[kept])), shape=shape)
        weights.sort_indices()
        return cls(numbers, rarity, weights)

    def scores(self, queries: Sequence[str]) -> sparse.csr_matrix:
        """Return the score of each text for each query; repeated words count once, unknown words are ignored."""
        known = [self.known(query) for query in queries]
        indptr = np.cumsum([0, *map(len, known)])
        indices = np.array([number for own in known for number in own], dtype=np.int64)
        chosen = sparse.csr_matrix((np.ones(len(indices)), indices, indptr), shape=(len(queries), len(self.numbers)))
        return chosen @ self.weights

    def known(self, text: str) -> list[int]:
        """Return the numbers of the distinct words of ``text``, ascending."""
        return sorted({self.numbers[word] for word in words(text) if word in self.numbers})

    def words_of(self, text: int) -> np.ndarray:
        """Return the numbers of the words of a text."""
        found: np.ndarray = self.by_text.indices[self.by_text.indptr[text] : self.by_text.indptr[text + 1]]
        return found

    def missing(self, query: str, texts: np.ndarray, best: np.ndarray) -> np.ndarray:
        """Return the score of each of ``texts``; a word counts by the share of the texts ``best`` that lack it."""
        known = self.known(query)
        held = [set(self.words_of(text).tolist()) for text in best.tolist()]
        lacking = [sum(word not in own for own in held) / len(held) for word in known]
        # A table of words as large as the vocabulary, of small numbers: it is filled for each query.
        numbers = np.zeros(len(self.numbers), dtype=np.uint16)
        numbers[known] = np.arange(1, len(known) + 1)
        entries, which = row_entries(self.by_text.indptr, texts)
        shares = np.array([0.0, *lacking])[numbers[self.by_text.indices[entries]]]
        return np.bincount(which, self.by_text.data[entries] * shares, minlength=len(texts))

    def weight(self, text: str) -> float:
        """Return the summed rarity of the distinct words of ``text``."""
        return float(sum(self.rarity[word] for word in self.known(text)))
