"""Names shared by passages: mentioned titles, and capitalised words.

A name is another passage's title between word boundaries, or a sequence of capitalised words. Scripts without capitals
have titles only, and scripts without spaces, such as Chinese, no names unless punctuation or spaces separate them. The
result is a directed bipartite graph of passages and names, as two sparse matrices: a walk leaves a passage mostly by
the titles that it mentions, and a name mostly to the passages with this title.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy import sparse

from platform_sdk.data.words import WORD
from platform_sdk.graph.linking import EntityLinker
from platform_sdk.records import Passage
from platform_sdk.retrieval.lexical import words

OWN_TITLE, IN_TITLE, TITLE, NAME = range(4)
"""Kinds of names in a passage: its title, a name within its title, another passage's title, and any other name."""
LEAVING = np.array([0.5, 0.2, 1.0, 0.2])
"""Weights of the kinds on the way from a passage to its names, before the division by the root of the name's count."""
ARRIVING = np.array([1.0, 0.5, 0.1, 0.1])
"""Weights of the kinds on the way from a name to its passages."""
LINKING_WORDS = frozenset(
    {"al", "bin", "da", "de", "del", "den", "der", "di", "du", "ibn", "la", "le", "of", "the", "van", "von"}
)
"""Lower-case words that may occur inside a name."""

# A word with its hyphens and apostrophes but without a genitive's s; or one other character.
_TOKEN = re.compile(rf"{WORD}(?:[-'’](?!s\b){WORD})*|[^\w\s]")
_QUALIFIER = re.compile(r"\s*\([^()]*\)\s*$")


def title_forms(title: str) -> tuple[str, ...]:
    """Return the forms of a title in texts: with and without a qualifier, as in *Numb (song)*."""
    return tuple(form for form in dict.fromkeys((title, _QUALIFIER.sub("", title))) if words(form))


def capitalised(text: str, common: Set[str] = frozenset(), linking: Set[str] = LINKING_WORDS) -> list[str]:
    """Return all sequences of capitalised words in ``text``, which may include numbers and linking words.

    Args:
        common: case-folded words that begin no name: they are capitalised only at the start of a sentence.
        linking: lower-case words that may occur inside a name.
    """
    runs: list[list[str]] = [[]]
    for token in _TOKEN.findall(unicodedata.normalize("NFKC", text)):
        run = runs[-1]
        begins = token[0].isupper() and (bool(run) or token.casefold() not in common)
        if begins or (run and (token in linking or token[0].isdigit())):
            run.append(token)
        elif run:
            runs.append([])
    for run in runs:
        while run and run[-1] in linking:
            run.pop()
    return [" ".join(run) for run in runs if sum(map(len, run)) > 2]


class Cases(NamedTuple):
    """Case-folded words of a corpus by their usual case.

    Attributes:
        common: words in lower case at least as often as capitalised; at the start of a sentence they begin no name.
        proper: words that are mostly capitalised, as names are, or as words that only begin sentences.
        inner: words of at least two letters that are capitalised within sentences more often than in lower case.
    """

    common: Set[str]
    proper: Set[str]
    inner: Set[str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Cases:
        balance: Counter[str] = Counter()
        begins: Counter[str] = Counter()
        for text in texts:
            before = "."
            for token in _TOKEN.findall(unicodedata.normalize("NFKC", text)):
                word = token.casefold()
                balance[word] += 1 if token[0].islower() else -1
                begins[word] += token[0].isupper() and not (before[0].isalnum() or before in ",;")
                before = token
        common = frozenset(word for word, more in balance.items() if more >= 0)
        proper = frozenset(balance) - common
        cased = (word for word in proper if len(word) > 1 and word != word.upper())
        return cls(common, proper, frozenset(word for word in cased if balance[word] + begins[word] < 0))


@dataclass(frozen=True)
class Names:
    """Names of several passages.

    Attributes:
        labels: the names.
        leaving: ``leaving[passage, name]`` is the weight of the way from a passage to a name; lower for common names.
        arriving: ``arriving[passage, name]`` is the weight of the way from a name to a passage; the same entries.
        titles: finds the forms of titles in a text.
        cases: the words of the passages by their case.
    """

    labels: Sequence[str]
    leaving: sparse.csr_matrix
    arriving: sparse.csr_matrix
    titles: EntityLinker
    forms: Sequence[str]  # of titles, in the linker's order
    passages_of_form: Sequence[np.ndarray]
    cases: Cases

    @cached_property
    def _keys(self) -> Set[str]:
        return frozenset(map(_key, self.labels))

    def named_in(self, text: str) -> bool:
        """Return True if a text has a name of the corpus.

        Names are titles, names that link passages, and after the first word all capitalised words that the passages
        mostly capitalise, but not *I*. In scripts with capitals, a name in lower case may be a common word. It counts
        in a text without capitals after its first word, as typed into a search box: if it is a title of several words
        that are capitalised there, or a word that the passages capitalise within sentences. A number is no name.
        """
        tokens = _TOKEN.findall(unicodedata.normalize("NFKC", text))
        mentions = self.titles.mentions(text)
        if (
            any(self._is_name(mention.position, mention.tokens) for mention in mentions)
            or any(_key(name) in self._keys for name in capitalised(text, self.cases.common))
            or any(t[0].isupper() and len(t) > 1 and t.casefold() in self.cases.proper for t in tokens[1:])
        ):
            return True
        if any(t[0].isupper() and t != "I" for t in tokens[1:]):
            return False
        return any(t.casefold() in self.cases.inner for t in tokens) or any(
            len(mention.tokens) > 1 and any(_capitals(self.forms[form]) for form in mention.entities)
            for mention in mentions
        )

    def _is_name(self, position: int, tokens: Sequence[str]) -> bool:
        if position == 0 and len(tokens) == 1 and tokens[0].casefold() in self.cases.common:
            return False
        written = " ".join(tokens)
        return written != written.lower() or (written == written.title() and any(map(str.isalpha, written)))

    @classmethod
    def build(
        cls, passages: Sequence[Passage], most: int, others: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> Names:
        """Return the names of 2 to ``most`` passages; names of more passages are not informative.

        Args:
            others: further names in passages, by the passage's id, such as a graph's entities.
        """
        holders: defaultdict[str, list[int]] = defaultdict(list)
        for row, passage in enumerate(passages):
            for form in title_forms(passage.title):
                holders[form].append(row)
        forms = sorted(holders)
        titles = EntityLinker([form] for form in forms)
        cases = Cases.of(passage.text for passage in passages)
        keys = [_key(form) for form in forms]
        own: list[dict[str, int]] = []
        labels: dict[str, str] = {}
        for passage in passages:
            found: dict[str, int] = {}
            within = capitalised(passage.title, linking=frozenset())
            further = [name for name in others.get(passage.id, ()) if words(name)]
            plain = [*further, *capitalised(passage.text, cases.common)]
            for name in (*plain, *within):
                labels[_key(name)] = min(labels.get(_key(name), name), name)
            found |= dict.fromkeys(map(_key, plain), NAME)
            found |= {keys[form]: TITLE for form in titles.link(passage.text)}
            found |= dict.fromkeys(map(_key, within), IN_TITLE)
            found |= {_key(form): OWN_TITLE for form in title_forms(passage.title)}
            own.append(found)
        labels |= dict(zip(keys, forms, strict=True))
        counts = Counter(name for found in own for name in found)
        numbers = {name: at for at, name in enumerate(sorted(name for name, n in counts.items() if 2 <= n <= most))}
        entries = [
            (row, numbers[name], kind, counts[name])
            for row, found in enumerate(own) for name, kind in found.items() if name in numbers
        ]  # fmt: skip
        rows, columns, kinds, holding = np.array(entries, dtype=np.int64).reshape(-1, 4).T
        leaving, arriving = (
            sparse.csr_matrix((values, (rows, columns)), shape=(len(passages), len(numbers)))
            for values in (LEAVING[kinds] / np.sqrt(holding), ARRIVING[kinds])
        )
        leaving.sort_indices()
        arriving.sort_indices()
        rows_of_form = [np.array(holders[form] if len(holders[form]) <= most else [], dtype=np.int64) for form in forms]
        return cls([labels[name] for name in numbers], leaving, arriving, titles, forms, rows_of_form, cases)


def _capitals(title: str) -> bool:
    """Return True if all words of a title are capitalised, except linking words and numbers."""
    return all(t[0].isupper() or not t[0].isalpha() or t in LINKING_WORDS for t in _TOKEN.findall(title))


def _key(name: str) -> str:
    return " ".join(words(name))
