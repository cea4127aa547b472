"""Entity linking: find the entities whose names stand in a text, with one automaton over all names and aliases."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from ahocorasick_rs import AhoCorasick, MatchKind

# A word, or one character that is neither part of a word nor space. NUL encloses tokens in a key.
_TOKEN = re.compile(r"\w+|[^\w\s\0]")


def _key(text: str) -> str:
    """Return the case-folded tokens of a text, each between NULs.

    A key contains another only at token borders. Each token has NULs of its own, so neighbouring matches share none.
    """
    return "".join(f"\0{token}\0" for token in _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold()))


class EntityLinker:
    """Link a text to entities by name: longest match from left to right, at word borders, whatever case and spacing.

    Args:
        names: The names and aliases of each entity. A name that several entities have links to all of them.
    """

    def __init__(self, names: Iterable[Iterable[str]]) -> None:
        entities: dict[str, list[int]] = {}
        for entity, own in enumerate(names):
            for key in dict.fromkeys(map(_key, own)):
                if key:
                    entities.setdefault(key, []).append(entity)
        self._entities = list(entities.values())
        self._automaton = AhoCorasick(entities, matchkind=MatchKind.LeftmostLongest, store_patterns=False)

    def link(self, text: str) -> list[int]:
        """Return the numbers of the entities that ``text`` names, each once, in the order of their first mention."""
        matches = self._automaton.find_matches_as_indexes(_key(text))
        return list(dict.fromkeys(entity for name, _, _ in matches for entity in self._entities[name]))
