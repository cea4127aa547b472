"""Client of a retriever service, with the interface of a local retriever.

Rollouts wait for an overloaded or unavailable service: a request is retried with backoff for up to ``patience``
seconds. Errors that waiting cannot fix are raised at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from platform_sdk.authorities import client_tls, untrusted
from platform_sdk.config.errors import UserError
from platform_sdk.endpoints import fits_header, opening
from platform_sdk.records import Evidence
from platform_sdk.retrieval.patience import LONGEST_PAUSE, Patience
from platform_sdk.retrieval.retriever import InvalidRequest, Retriever
from platform_sdk.retrieval.wire import (
    DIGEST_HEADER,
    MAX_BYTES,
    MAX_CHARACTERS,
    MAX_HITS,
    MAX_QUERIES,
    CollectionFacts,
    ListedCollection,
    Query,
    Refusal,
    SearchAnswer,
    SearchBody,
)
from platform_sdk.sampling.rollout import RetrieverFault, SearchRequest

AUTHORITY = "HOPFORGE_RETRIEVER_CA"
"""Environment variable with a PEM file of additional certificate authorities."""
PATIENCE = 600.0  # seconds
TIMEOUT = httpx.Timeout(60.0, connect=5.0)
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
ESCAPED = 6  # bytes of JSON that a character may take: \\u0000

T = TypeVar("T")


class RemoteRetriever(Retriever):
    """A collection of a retriever service.

    Args:
        url: the service's URL, e.g. http://retriever:8080 or https://retriever:8080. Certificates are always checked.
        collection: the collection's name; None if the service has only one.
        token_env: the environment variable with the team's token; it may be unset if the service requires none.
        patience: retry deadline of a request in seconds.

    Raises:
        UserError: the service rejects the token, has no such collection, or stayed unavailable; or the environment's
            proxy is not valid.
    """

    def __init__(
        self, url: str, collection: str | None = None, *, token_env: str = "HOPFORGE_RETRIEVER_TOKEN",
        patience: float = PATIENCE,
    ) -> None:  # fmt: skip
        token = os.environ.get(token_env, "").strip()
        if not fits_header(token):
            raise UserError(f"the token in {token_env} has characters that an HTTP header must not hold; set it again")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._url, self._token_env, self._patience = url.rstrip("/"), token_env, patience
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
        tls = client_tls(AUTHORITY)
        with opening(self._url):
            self._client = httpx.Client(base_url=self._url, headers=headers, timeout=TIMEOUT, verify=tls)
        try:
            self.facts = self._facts(collection)
        except BaseException:
            self.close()
            raise
        self.corpus_digest, self.encoder = self.facts.corpus_digest, self.facts.encoder.name

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        """Return at most ``k`` pieces of evidence for each request, best first.

        Raises:
            InvalidRequest: the service rejects a request.
            UserError: the service's corpus or encoder changed, or the service stayed unavailable.
            RetrieverFault: the response is incomplete, or the service failed and ``patience`` is 0.
        """
        if k > MAX_HITS:
            raise UserError(f"{self._url}: the service gives at most {MAX_HITS} pieces of evidence, not {k}")
        return [found for part in _parts(requests) for found in self._search(part, k)]

    def close(self) -> None:
        self._client.close()

    def _search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        queries = tuple(Query(query=request.query, scope=dict(request.scope)) for request in requests)
        body = SearchBody(queries=queries, k=k, collection=self.facts.name)
        answered = self._send(
            "POST", "/v1/search", content=body.model_dump_json(),
            headers={DIGEST_HEADER: self.corpus_digest, "Content-Type": "application/json"},
        )  # fmt: skip
        answer = self._read(TypeAdapter(SearchAnswer), answered)
        if answer.corpus_digest != self.corpus_digest or answered.headers.get(DIGEST_HEADER) != self.corpus_digest:
            raise UserError(f"{self._url}: answered from corpus {answer.corpus_digest}, not {self.corpus_digest}")
        if answer.encoder.identity != self.facts.encoder.identity:
            raise UserError(
                f"{self._url}: collection {self.facts.name} was searched by {self.facts.encoder} and is now by "
                f"{answer.encoder}; restore the service's former encoder and repeat the command"
            )
        if len(answer.results) != len(requests):
            raise RetrieverFault(f"{self._url}: {len(answer.results)} results came back for {len(requests)} queries")
        for request, item in zip(requests, answer.results, strict=True):
            if item.error is not None:
                raise InvalidRequest(f"{self._url}: {item.error.message}: {request}")
        return [list(item.evidence or ()) for item in answer.results]

    def _facts(self, collection: str | None) -> CollectionFacts:
        """Return the collection's facts; wait until it is open."""
        patience = Patience(self._url, self._patience)
        while True:
            listed = self._read(TypeAdapter(list[ListedCollection]), self._send("GET", "/v1/collections"))
            named = [one for one in listed if collection in (None, one.name)]
            if len(named) != 1:
                wanted = f"no collection {collection!r}" if collection else "several collections, and none is named"
                known = ", ".join(one.name for one in listed) or "none"
                raise UserError(f"{self._url}: {wanted}; set retrieval.collection. For this team there are: {known}")
            if named[0].facts is not None:
                return named[0].facts
            patience.wait(named[0].status.detail)

    def _send(self, method: str, route: str, **content: Any) -> httpx.Response:
        """Send a request, with retries, until the response is final."""
        patience = Patience(f"{self._url}{route}", self._patience)
        while True:
            try:
                answer = self._client.request(method, route, **content)
            except httpx.RequestError as error:
                if (refusal := untrusted(error, self._url, AUTHORITY)) is not None:
                    raise refusal from error
                patience.wait(f"{type(error).__name__}: {error}")
                continue
            if answer.status_code == 200:
                return answer
            if answer.status_code not in TRANSIENT:
                remedy = f"; put the team's token into {self._token_env}" if answer.status_code == 401 else ""
                raise UserError(f"{self._url}: {_reason(answer)}{remedy}")
            patience.wait(_reason(answer), _retry_after(answer))

    def _read(self, form: TypeAdapter[T], answer: httpx.Response) -> T:
        try:
            return form.validate_json(answer.content, extra="ignore")  # a newer service may add fields
        except ValidationError as error:
            raise UserError(
                f"{answer.url}: this is not an answer of a retriever service ({answer.text[:80]!r}…); "
                "check retrieval.url, and that the service has this version"
            ) from error


def _parts(requests: Sequence[SearchRequest]) -> Iterator[list[SearchRequest]]:
    """Yield ``requests`` in batches within the service's limits."""
    part: list[SearchRequest] = []
    size = 0
    for request in requests:
        if len(request.query) > MAX_CHARACTERS:
            raise InvalidRequest(f"a query of {len(request.query)} characters is longer than {MAX_CHARACTERS}")
        texts = (request.query, *request.scope, *request.scope.values())
        most = sum(ESCAPED * len(text) + 64 for text in texts)
        if part and (len(part) == MAX_QUERIES or size + most > MAX_BYTES - 1024):
            yield part
            part, size = [], 0
        part.append(request)
        size += most
    if part:
        yield part


def _reason(answer: httpx.Response) -> str:
    try:
        reason = Refusal.model_validate_json(answer.content, extra="ignore").error.message
    except ValidationError:
        reason = answer.text[:300]
    return f"HTTP {answer.status_code}: {reason}"


def _retry_after(answer: httpx.Response) -> float:
    """Return the seconds of Retry-After: a whole number from the service, perhaps a date from a proxy."""
    value = answer.headers.get("Retry-After", "")
    return min(float(value), LONGEST_PAUSE) if value.isascii() and value.isdigit() else 0.0
