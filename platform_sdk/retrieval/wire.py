"""Requests and responses of the retriever service, version 1."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from platform_sdk.records import Evidence
from platform_sdk.sampling.rollout import SearchRequest

DIGEST_HEADER = "X-Corpus-Digest"
# Together they bound the cost of a request. The client splits larger batches.
MAX_QUERIES = 256
MAX_CHARACTERS = 32_768  # of a query; more than any encoder reads
MAX_HITS = 100  # for one query
MAX_BYTES = 1 << 20  # of a request's body


def _whole(value: Any) -> Any:
    """Accept 5.0, which is an integer in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]


class Wire(BaseModel):
    """Base of requests and responses. Unknown fields are refused; clients read responses with ``extra="ignore"``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Query(Wire):
    """A query of an agent."""

    query: str = Field(max_length=MAX_CHARACTERS, examples=["Who directed the film Casablanca?"])
    scope: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=1024)]] = Field(
        {},
        max_length=16,
        description="Further input of the collection's method: head, the entity whose triples are searched; "
        "question_id, the question whose own passages are searched.",
    )

    def request(self) -> SearchRequest:
        return SearchRequest(self.query, self.scope)


class SearchBody(Wire):
    """A batch of queries against one collection."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"queries": [{"query": "Who directed the film Casablanca?"}], "k": 5, "collection": "hotpotqa"},
                {
                    "queries": [{"query": "Who is the spouse?", "scope": {"head": "Ada Kahn"}}],
                    "k": 3,
                    "deadline_ms": 5000,
                },
            ]
        }
    )

    queries: tuple[Query, ...] = Field(min_length=1, max_length=MAX_QUERIES)
    k: Whole = Field(ge=1, le=MAX_HITS, description="Maximum pieces of evidence for each query.")
    collection: str | None = Field(
        None, max_length=63, description="Name of the collection; optional if there is only one."
    )
    deadline_ms: Whole | None = Field(
        None, ge=1, le=600_000, description="Deadline of the caller; default: the service's limit."
    )


def parse_body(raw: bytes) -> SearchBody:
    """Parse the body of a request.

    Raises:
        ValidationError: the body is not a valid request, or an object in it has a duplicate key.
    """
    body = SearchBody.model_validate_json(raw)
    json.loads(raw, object_pairs_hook=_with_unique_keys)
    return body


def _with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        error = PydanticCustomError("duplicate_key", "is given twice; send it once")
        raise ValidationError.from_exception_data("SearchBody", [{"type": error, "loc": (twice,), "input": twice}])
    return found


class Fault(Wire):
    """Reason of a failure. ``code`` is for programs, ``message`` for people."""

    code: str = Field(examples=["queue_full"])
    message: str = Field(examples=["the queue is full; try again in 2 s"])


class Item(Wire):
    """The outcome of one query: evidence, best first, or the query's error."""

    evidence: tuple[Evidence, ...] | None = None
    error: Fault | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Item:
        if (self.evidence is None) == (self.error is None):
            raise ValueError("an item holds either evidence or an error")
        return self


class EncoderFacts(Wire):
    """Encoder of queries and texts."""

    name: str
    digest: str = Field(description="Digest of its weights, its tokenizer and passage_prefix.")
    query_prefix: str
    passage_prefix: str

    @property
    def identity(self) -> str:
        """SHA-256 (hex) of everything that affects results; excludes the name, since a model may have several names."""
        return hashlib.sha256(f"{self.digest} {self.query_prefix}".encode()).hexdigest()

    def __str__(self) -> str:
        prefix = f" with query_prefix {self.query_prefix!r}" if self.query_prefix else ""
        return f"{self.name} (digest {self.digest[:16]}…){prefix}"


class SearchAnswer(Wire):
    """One item for each query, in their order."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "collection": "hotpotqa",
                    "corpus_digest": "9f2c" * 16,
                    "encoder": {
                        "name": "BAAI/bge-large-en-v1.5", "digest": "51b7" * 16, "passage_prefix": "",
                        "query_prefix": "Represent this sentence for searching relevant passages: ",
                    },
                    "results": [
                        {
                            "evidence": [
                                {
                                    "kind": "passage", "id": "42", "title": "Casablanca (film)", "score": 0.71,
                                    "text": "Casablanca is a film directed by Michael Curtiz.",
                                }
                            ],
                            "error": None,
                        },
                        {"evidence": None, "error": {"code": "invalid_query", "message": "what was wrong with it"}},
                    ],
                }
            ]
        }
    )  # fmt: skip

    collection: str
    corpus_digest: str
    encoder: EncoderFacts
    results: tuple[Item, ...]


class Refusal(Wire):
    """Body of every error answer."""

    error: Fault


class CollectionFacts(Wire):
    """Description of a collection."""

    name: str
    method: str = Field(description="The retrieval method.")
    settings: dict[str, Any] = Field(description="The settings of the method.")
    corpus_digest: str = Field(description="Digest of everything that the method searches.")
    encoder: EncoderFacts
    rows: int


class Status(Wire):
    """Readiness for searches, and the collections that are not open, with the reasons."""

    status: Literal["loading", "ready", "failed", "stopping"]
    detail: str = ""


class ListedCollection(Wire):
    """A collection that the team may search. ``facts`` are known when it is open."""

    name: str
    status: Status
    facts: CollectionFacts | None
