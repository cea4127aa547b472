"""Settings of the retriever service: its collections, their teams, and the limits of its queue."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.struct import Struct


class CollectionSpec(Struct):
    """One collection: its prepared data, environment and teams."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", description="Name of the collection in requests.")
    run_dir: Path = Field(description="Directory that contains corpus/, such as a run directory.")
    environment: str = Field(
        description="Environment, e.g. hotpot or 2wiki-kg; decides the retrieval method unless retrieval.method is set."
    )
    retrieval: RetrievalSpec = RetrievalSpec()
    teams: tuple[str, ...] = Field((), description="Teams that may search it; empty: every team.")

    @field_validator("retrieval")
    @classmethod
    def _searches_by_itself(cls, value: RetrievalSpec) -> RetrievalSpec:
        if value.url is not None:
            raise ValueError(
                "a service searches its own index and cannot use another service; remove url and collection"
            )
        return value


class ServiceSpec(Struct):
    """The service: its collections and its limits."""

    collections: tuple[CollectionSpec, ...] = Field(min_length=1)
    # Per collection, so that a flood of requests from one team does not refuse another's.
    queue: int = Field(2048, ge=1, description="Maximum waiting queries per collection; further ones get HTTP 429.")
    batch: int = Field(256, ge=1, description="Maximum queries per batch.")
    connections: int = Field(1024, ge=1, description="Maximum concurrent connections; further ones are closed at once.")
    deadline_seconds: float = Field(30.0, gt=0, description="Default deadline of a request, in seconds.")

    @field_validator("collections")
    @classmethod
    def _names_differ(cls, value: tuple[CollectionSpec, ...]) -> tuple[CollectionSpec, ...]:
        names = [collection.name for collection in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two collections have the name {', '.join(twice)}; rename one")
        return value
