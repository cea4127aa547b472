"""Names shared by passages: mentioned titles, and capitalised words.

A name is another passage's title between word boundaries, or a sequence of capitalised words. Scripts without capitals
have titles only. The result is a bipartite graph of passages and names, as a sparse matrix.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from platform_sdk.graph.linking import EntityLinker
from platform_sdk.records import Passage
from platform_sdk.retrieval.lexical import words

OWN_TITLE, TITLE, NAME = 2.0, 1.0, 0.2
"""Weights of a passage's own title, of another's title that it mentions, and of any other name."""
LINKING_WORDS = frozenset(
    {"al", "bin", "da", "de", "del", "den", "der", "di", "du", "ibn", "la", "le", "of", "the", "van", "von"}
)
"""Lower-case words that may occur inside a name."""

# A word with its hyphens and apostrophes but without a genitive's s; or one other character.
_TOKEN = re.compile(r"\w+(?:[-'’](?!s\b)\w+)*|[^\w\s]")
_QUALIFIER = re.compile(r"\s*\([^()]*\)\s*$")


def title_forms(title: str) -> tuple[str, ...]:
    """Return the forms of a title in texts: with and without a qualifier, as in *Numb (song)*."""
    return tuple(form for form in dict.fromkeys((title, _QUALIFIER.sub("", title))) if words(form))


def capitalised(text: str, common: frozenset[str]) -> list[str]:
    """Return all sequences of capitalised words in ``text``, which may include numbers and linking words.

    Args:
        common: case-folded words that begin no name: they are capitalised only at the start of a sentence.
    """
    runs: list[list[str]] = [[]]
    for token in _TOKEN.findall(unicodedata.normalize("NFKC", text)):
        run = runs[-1]
        begins = token[0].isupper() and (bool(run) or token.casefold() not in common)
        if begins or (run and (token in LINKING_WORDS or token[0].isdigit())):
            run.append(token)
        elif run:
            runs.append([])
    for run in runs:
        while run and run[-1] in LINKING_WORDS:
            run.pop()
    return [" ".join(run) for run in runs if sum(map(len, run)) > 2]


def common_words(texts: Iterable[str]) -> frozenset[str]:
    """Return the case-folded words that ``texts`` have in lower case at least as often as capitalised."""
    balance: Counter[str] = Counter()
    for text in texts:
        for token in _TOKEN.findall(unicodedata.normalize("NFKC", text)):
            balance[token.casefold()] += 1 if token[0].islower() else -1
    return frozenset(word for word, more in balance.items() if more >= 0)


@dataclass(frozen=True)
class Names:
    """Names of several passages. ``weights[passage, name]`` is higher for titles and lower for common names."""

    labels: Sequence[str]
    weights: sparse.csr_matrix
    titles: EntityLinker
    forms: Sequence[str]  # of titles, in the linker's order
    passages_of_form: Sequence[np.ndarray]

    @classmethod
    def build(cls, passages: Sequence[Passage], most: int) -> Names:
        """Return the names of 2 to ``most`` passages; names of more passages are not informative."""
        holders: defaultdict[str, list[int]] = defaultdict(list)
        for row, passage in enumerate(passages):
            for form in title_forms(passage.title):
                holders[form].append(row)
        forms = sorted(holders)
        titles = EntityLinker([form] for form in forms)
        common = common_words(passage.text for passage in passages)
        keys = [_key(form) for form in forms]
        own: list[dict[str, float]] = []
        labels: dict[str, str] = {}
        for passage in passages:
            found: dict[str, float] = {}
            for name in capitalised(passage.text, common):
                found[_key(name)] = NAME
                labels[_key(name)] = min(labels.get(_key(name), name), name)
            found |= {keys[form]: TITLE for form in titles.link(passage.text)}
            found |= {_key(form): OWN_TITLE for form in title_forms(passage.title)}
            own.append(found)
        labels |= dict(zip(keys, forms, strict=True))
        counts = Counter(name for found in own for name in found)
        numbers = {name: at for at, name in enumerate(sorted(name for name, n in counts.items() if 2 <= n <= most))}
        entries = [
            (row, numbers[name], weight / counts[name])
            for row, found in enumerate(own) for name, weight in found.items() if name in numbers
        ]  # fmt: skip
        rows, columns, values = np.array(entries, dtype=np.float64).reshape(-1, 3).T
        shape = (len(passages), len(numbers))
        weights = sparse.csr_matrix((values, (rows.astype(np.int64), columns.astype(np.int64))), shape=shape)
        weights.sort_indices()
        rows_of_form = [np.array(holders[form] if len(holders[form]) <= most else [], dtype=np.int64) for form in forms]
        return cls([labels[name] for name in numbers], weights, titles, forms, rows_of_form)


def _key(name: str) -> str:
    return " ".join(words(name))
