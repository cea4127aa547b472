"""A retriever behind the service, with the interface of one in this process.

Rollouts wait for a service that is overloaded or away, and go on when it is back: a request is sent again, less and
less often, for as long as ``patience``. What cannot get better by waiting is told at once.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Sequence
from typing import Any, Self

import httpx

from platform_sdk.config.errors import UserError
from platform_sdk.records import Evidence
from platform_sdk.retrieval.service.wire import (
    DIGEST_HEADER,
    MOST_QUERIES,
    CollectionFacts,
    Query,
    SearchAnswer,
    SearchBody,
)
from platform_sdk.sampling.rollout import RetrieverFault, SearchRequest

log = logging.getLogger(__name__)

PATIENCE = 600.0  # seconds
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0
TIMEOUT = httpx.Timeout(60.0, connect=5.0)
TRANSIENT = frozenset({429, 502, 503, 504})


class RemoteRetriever:
    """See ``retrieval.search.Retriever``.

    Args:
        url: of the service, as http://retriever:8080.
        collection: as the service calls it; None where it has but one.
        token_env: the environment variable with the team's token; it may be unset where the service asks for none.
        patience: how long, in seconds, a request is sent again before the retriever counts as failed.

    Raises:
        UserError: the service does not let this team in, or has no such collection.
        RetrieverFault: the service could not be reached within ``patience``.
    """

    def __init__(
        self, url: str, collection: str | None = None, *, token_env: str = "HOPFORGE_RETRIEVER_TOKEN",
        patience: float = PATIENCE,
    ) -> None:  # fmt: skip
        token = os.environ.get(token_env)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._url, self._token_env, self._patience = url.rstrip("/"), token_env, patience
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it reports every request
        self._client = httpx.Client(base_url=self._url, headers=headers, timeout=TIMEOUT)
        self.facts = self._facts(collection)
        self.corpus_digest = self.facts.corpus_digest

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        """At most ``k`` pieces of evidence for each request, best first.

        Raises:
            ValueError: the service cannot make sense of a request.
            UserError: the service searches another corpus than it did.
            RetrieverFault: no answer within ``patience``.
        """
        found: list[list[Evidence]] = []
        for start in range(0, len(requests), MOST_QUERIES):
            found += self._search(requests[start : start + MOST_QUERIES], k)
        return found

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        queries = tuple(Query(query=r.query, head=r.head, question_id=r.question_id) for r in requests)
        body = SearchBody(queries=queries, k=k, collection=self.facts.name)
        answered = self._send(
            "POST", "/v1/search", content=body.model_dump_json(),
            headers={DIGEST_HEADER: self.corpus_digest, "Content-Type": "application/json"},
        )  # fmt: skip
        answer = SearchAnswer.model_validate_json(answered.content)
        if answer.corpus_digest != self.corpus_digest or answered.headers.get(DIGEST_HEADER) != self.corpus_digest:
            raise UserError(f"{self._url}: answered from corpus {answer.corpus_digest}, not {self.corpus_digest}")
        if len(answer.results) != len(requests):
            raise RetrieverFault(f"{self._url}: {len(answer.results)} results came back for {len(requests)} queries")
        for request, item in zip(requests, answer.results, strict=True):
            if item.error is not None:
                raise ValueError(f"{self._url}: {item.error.message}: {request}")
        return [[hit.evidence() for hit in item.evidence or ()] for item in answer.results]

    def _facts(self, collection: str | None) -> CollectionFacts:
        listed = [CollectionFacts.model_validate(one) for one in self._send("GET", "/v1/collections").json()]
        named = [facts for facts in listed if collection in (None, facts.name)]
        if len(named) != 1:
            wanted = f"no collection {collection!r}" if collection else "several collections, and none is named"
            known = ", ".join(facts.name for facts in listed) or "none"
            raise UserError(f"{self._url}: {wanted}; set retrieval.collection. For this team there are: {known}")
        return named[0]

    def _send(self, method: str, route: str, **content: Any) -> httpx.Response:
        """Send until there is an answer that waiting would not change."""
        until = time.monotonic() + self._patience
        pause = FIRST_PAUSE
        told = False
        while True:
            try:
                answer = self._client.request(method, route, **content)
            except httpx.TransportError as error:
                fault, wait = f"{type(error).__name__}: {error}", 0.0
            else:
                if answer.status_code < 400:
                    return answer
                fault, wait = _reason(answer), _retry_after(answer)
                if answer.status_code not in TRANSIENT:
                    raise self._refused(answer.status_code, fault)
            # Spread out, so that all who wait do not come back at the same moment.
            wait = max(wait, pause * random.uniform(0.5, 1.0))
            if time.monotonic() + wait > until:
                raise RetrieverFault(f"{self._url}{route}: no answer in {self._patience:g} s; the last: {fault}")
            if not told:
                log.warning("%s%s: %s; waiting for it", self._url, route, fault)
                told = True
            time.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _refused(self, status: int, reason: str) -> UserError:
        remedy = f"; put the team's token into {self._token_env}" if status == 401 else ""
        return UserError(f"{self._url}: HTTP {status}: {reason}{remedy}")


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}: {answer.text[:300]}"


def _retry_after(answer: httpx.Response) -> float:
    """Seconds that the service asks for; its own Retry-After is a whole number, a proxy's may be a date."""
    value = answer.headers.get("Retry-After", "")
    return min(float(value), LONGEST_PAUSE) if value.isdigit() else 0.0
