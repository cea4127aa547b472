"""Facts from an extractor, before entities are merged."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from platform_sdk.config.struct import Struct
from platform_sdk.records import Record, Source


class Mention(Struct):
    """A mention of an entity in a fact. ``rule`` is the rule that found it; a ``span`` may be linked to a title."""

    name: str = Field(pattern=r"\S")
    type: str = ""
    description: str = ""
    alias: str = ""
    rule: str = "given"


class Fact(Struct):
    """A sentence, the entities in it and its place in a passage: a hyperedge before merging."""

    text: str = Field(pattern=r"\S")
    entities: tuple[Mention, ...]
    source: Source


class Extraction(Record):
    """Everything extracted from one chunk; ``malformed`` are an LLM's unparsable records."""

    KIND: ClassVar[str] = "extraction"
    chunk: str
    facts: tuple[Fact, ...]
    malformed: tuple[str, ...] = ()
