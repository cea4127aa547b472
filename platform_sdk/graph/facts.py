"""Facts as an extractor states them, before entities are merged."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from platform_sdk.records import Record, Source


class Mention(BaseModel):
    """An entity as one fact names it. ``rule`` says how it was found; a ``span`` may be linked to a title."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(pattern=r"\S")
    type: str = ""
    description: str = ""
    alias: str = ""
    rule: str = "given"


class Fact(BaseModel):
    """A sentence, the entities in it and its place in a passage: a hyperedge before merging."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    text: str = Field(pattern=r"\S")
    entities: tuple[Mention, ...]
    source: Source


class Extraction(Record):
    """Everything that was extracted from one chunk; ``malformed`` are an LLM's records that could not be read."""

    KIND: ClassVar[str] = "extraction"
    chunk: str
    facts: tuple[Fact, ...]
    malformed: tuple[str, ...] = ()
