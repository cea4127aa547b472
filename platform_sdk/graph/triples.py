"""Extraction from triples: each is a fact that joins its head and its tail.

Its source is the passage that has the head as its title, which is found when the graph is merged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from platform_sdk.graph.facts import Extraction, Fact, Mention
from platform_sdk.records import Source, Triple

VERSION = 1
BLOCK = 100
"""Triples of a chunk."""


def extractions(triples: Sequence[Triple]) -> Iterator[Extraction]:
    """Yield the facts of triples, in blocks whose ids follow from their content."""
    for at in range(0, len(triples), BLOCK):
        block = [triple for triple in triples[at : at + BLOCK] if triple.head.strip() and triple.tail.strip()]
        content = "\n".join(triple.model_dump_json() for triple in block)
        yield Extraction(chunk=hashlib.sha256(content.encode()).hexdigest()[:20], facts=tuple(map(fact, block)))


def fact(triple: Triple) -> Fact:
    return Fact(
        text=triple.text,
        entities=tuple(Mention(name=name, rule="triple") for name in (triple.head, triple.tail)),
        source=Source(passage=""),
    )
