"""Settings of the retriever service: its collections, their teams, and the limits of its queue."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.struct import Struct


class CollectionSpec(Struct):
    """One collection: the prepared data it is made of, how an agent searches it, and who may."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", description="What a request calls it.")
    run_dir: Path = Field(description="The directory that holds corpus/, as a run's does.")
    environment: str = Field(
        description="What it is, e.g. hotpot or 2wiki-kg: how it is searched, without retrieval.method."
    )
    retrieval: RetrievalSpec = RetrievalSpec()
    teams: tuple[str, ...] = Field((), description="The teams that may search it; none named: every team.")

    @field_validator("retrieval")
    @classmethod
    def _searches_by_itself(cls, value: RetrievalSpec) -> RetrievalSpec:
        if value.url is not None:
            raise ValueError("a service searches by itself and asks no other: leave url and collection out")
        return value


class ServiceSpec(Struct):
    """The service: its collections and its limits."""

    collections: tuple[CollectionSpec, ...] = Field(min_length=1)
    # Per collection, so that a flood of requests from one team does not refuse another's.
    queue: int = Field(2048, ge=1, description="Queries that may wait for one collection; more are answered 429.")
    batch: int = Field(256, ge=1, description="Most queries that are encoded and searched together.")
    connections: int = Field(1024, ge=1, description="Connections at a time; further ones are closed at once.")
    deadline_seconds: float = Field(30.0, gt=0, description="How long a request may take that names no deadline.")

    @field_validator("collections")
    @classmethod
    def _names_differ(cls, value: tuple[CollectionSpec, ...]) -> tuple[CollectionSpec, ...]:
        names = [collection.name for collection in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two collections are called {', '.join(twice)}; give each a name of its own")
        return value
