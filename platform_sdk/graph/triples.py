"""Extraction from triples: each is a fact that joins its head and its tail.

Its source, the passage titled with the head, is looked up when the graph is merged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

from platform_sdk.graph.facts import Fact, Mention
from platform_sdk.records import Source, Triple

VERSION = 1
BLOCK = 100
"""Triples per chunk."""


def blocks(triples: Iterable[Triple]) -> Iterator[tuple[str, list[Triple]]]:
    """Yield triples in blocks, each with an id that follows from its content; blank triples are left out."""
    rest = iter(triples)
    while read := list(islice(rest, BLOCK)):
        block = [triple for triple in read if triple.head.strip() and triple.tail.strip()]
        content = "\n".join(triple.model_dump_json() for triple in block)
        yield hashlib.sha256(content.encode()).hexdigest()[:20], block


def fact(triple: Triple) -> Fact:
    return Fact(
        text=triple.text,
        entities=tuple(Mention(name=name, rule="triple") for name in (triple.head, triple.tail)),
        source=Source(passage=""),
    )
