"""2WikiMultihopQA's ``id_aliases.json``: aliases of entities by Wikidata id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from platform_sdk.data.files import read_json_lines


class Alias(msgspec.Struct):
    """One line of the file."""

    id: str = msgspec.field(name="Q_id")
    aliases: list[str]
    demonyms: list[str]


Aliases = Mapping[str, frozenset[str]]


def read_aliases(path: Path) -> Aliases:
    """Return the aliases of each entity id, including demonyms."""
    return {line.id: frozenset(line.aliases + line.demonyms) for line in read_json_lines(path, Alias)}
