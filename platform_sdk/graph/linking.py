"""Entity linking: search a text for the names of entities, with one automaton over all names and aliases."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ahocorasick_rs import AhoCorasick, MatchKind

from platform_sdk.data.words import WORD

# A word, or one character that is neither part of a word nor space. Keys enclose tokens in NULs.
_TOKEN = re.compile(rf"{WORD}|[^\w\s\0]")


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFKC", text))


def _key(tokens: Iterable[str]) -> str:
    """Return the case-folded tokens, each between NULs.

    A key contains another key only at token borders. Each token has separate NULs, so adjacent matches do not overlap.
    """
    return "".join(f"\0{token.casefold()}\0" for token in tokens)


class Mention(NamedTuple):
    """A name in a text: its tokens, the first one's position, and its entities (True if lower case may mean them)."""

    position: int
    tokens: tuple[str, ...]
    entities: Mapping[int, bool]


class EntityLinker:
    """Link a text to entities by name: longest match from left to right, at word borders, ignoring case and spacing.

    A single lower-case word is not linked to a capitalised name: *was* is not *Was*, nor *'s* the name *S*. In a text
    without any capital letter it is linked, since case carries no information there.

    Args:
        names: The names and aliases of each entity. A shared name links to all its entities.
    """

    def __init__(self, names: Iterable[Iterable[str]]) -> None:
        entities: dict[str, dict[int, bool]] = {}  # of each key, and whether a lower-case word links to them
        for entity, own in enumerate(names):
            for tokens in map(_tokens, own):
                if tokens:
                    lower = len(tokens) > 1 or tokens[0] == tokens[0].lower()
                    linked = entities.setdefault(_key(tokens), {})
                    linked[entity] = linked.get(entity, False) or lower
        self._entities = list(entities.values())
        self._automaton = AhoCorasick(entities, matchkind=MatchKind.LeftmostLongest, store_patterns=False)

    def link(self, text: str) -> list[int]:
        """Return the numbers of the entities named in ``text``, each once, in the order of their first mention."""
        tokens = _tokens(text)
        cased = any(token != token.lower() for token in tokens)
        found: dict[int, None] = {}
        for mention in self._mentions(tokens):
            word = cased and mention.tokens[0] == mention.tokens[0].lower()
            found |= dict.fromkeys(entity for entity, lower in mention.entities.items() if lower or not word)
        return list(found)

    def mentions(self, text: str) -> list[Mention]:
        """Return the longest names in ``text`` from left to right, whatever their case."""
        return list(self._mentions(_tokens(text)))

    def _mentions(self, tokens: Sequence[str]) -> Iterator[Mention]:
        key = _key(tokens)
        last = before = 0
        for name, start, end in self._automaton.find_matches_as_indexes(key):
            first = last + key.count("\0", before, start) // 2
            last, before = first + key.count("\0", start, end) // 2, end
            yield Mention(first, tuple(tokens[first:last]), self._entities[name])
