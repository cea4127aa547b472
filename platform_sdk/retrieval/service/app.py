"""The retriever service: ``POST /v1/search`` and what a cluster asks of a service.

One process serves some collections. Their encoders and Milvus calls run in one worker thread, since an embedded Milvus
bears no more; concurrent requests are joined (``batching``). A fault of what the service rests on is answered 503 with
Retry-After and never as an empty result.
"""

# Without "from __future__ import annotations": FastAPI could not find the dependencies that are local to create_app.

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from platform_sdk.config.errors import UserError
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.records import RecordError
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.search import IndexRetriever
from platform_sdk.retrieval.service.batching import Batcher, Full, Stopping
from platform_sdk.retrieval.service.tokens import Tokens
from platform_sdk.retrieval.service.wire import (
    DIGEST_HEADER,
    CollectionFacts,
    Fault,
    Hit,
    Item,
    Refusal,
    SearchAnswer,
    SearchBody,
    Status,
)
from platform_sdk.sampling.rollout import RetrieverFault, SearchRequest

log = logging.getLogger(__name__)

RETRY_SECONDS = 2
DESCRIPTION = "Searches collections of passages or triples, named by what they are made of."


@dataclass
class _Collection:
    spec: CollectionSpec
    retriever: IndexRetriever
    batcher: Batcher

    def facts(self) -> CollectionFacts:
        return CollectionFacts(
            name=self.spec.name,
            environment=self.spec.environment,
            corpus_digest=self.retriever.corpus_digest,
            encoder=self.spec.retrieval.encoder,
            encoder_digest=self.retriever.encoder_digest,
            rows=self.retriever.rows,
        )


class _Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers or {}


class _Metrics:
    """What Prometheus is told."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "hopforge_retriever_requests", "Answered requests.", ["collection", "status"], registry=self.registry
        )
        self.queries = Counter(
            "hopforge_retriever_queries", "Answered queries.", ["collection", "team"], registry=self.registry
        )
        self.waiting = Gauge(
            "hopforge_retriever_queue_queries", "Queries that wait.", ["collection"], registry=self.registry
        )
        self.batch = Histogram(
            "hopforge_retriever_batch_queries", "Queries of one call.", ["collection"], registry=self.registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        )  # fmt: skip
        self.seconds = Histogram(
            "hopforge_retriever_call_seconds", "Seconds of one call.", ["collection"], registry=self.registry
        )


class _Service:
    """The collections while the service lives."""

    def __init__(self, spec: ServiceSpec) -> None:
        self.spec = spec
        self.metrics = _Metrics()
        self.status = Status(status="loading", detail="the collections are being opened")
        self.collections: dict[str, _Collection] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="retriever")

    @contextlib.asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Open the collections while /healthz answers already; at the end answer what waits, then close."""
        opening = asyncio.create_task(self._open())
        yield
        self.status = Status(status="stopping", detail="the service is about to end")
        for collection in self.collections.values():
            collection.batcher.close()
        await opening
        self._worker.shutdown(wait=True)

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            try:
                for spec in self.spec.collections:
                    retriever = await loop.run_in_executor(self._worker, _opened, spec)
                    collection = _Collection(spec, retriever, self._batcher(spec, retriever))
                    self.collections[spec.name] = collection
                    tasks.create_task(collection.batcher.run())
            except (UserError, RecordError, RetrieverFault) as error:
                log.error("%s", error)
                self.status = Status(status="failed", detail=str(error))
                return
            if self.status.status == "loading":
                self.status = Status(status="ready")
            else:  # told to end meanwhile
                for collection in self.collections.values():
                    collection.batcher.close()
        for collection in self.collections.values():
            await loop.run_in_executor(self._worker, collection.retriever.close)

    def _batcher(self, spec: CollectionSpec, retriever: IndexRetriever) -> Batcher:
        metrics = self.metrics

        def observe(queries: int, seconds: float) -> None:
            metrics.batch.labels(spec.name).observe(queries)
            metrics.seconds.labels(spec.name).observe(seconds)

        batcher = Batcher(retriever.search, self._worker, queue=self.spec.queue, batch=self.spec.batch, observe=observe)
        metrics.waiting.labels(spec.name).set_function(lambda: batcher.queries)
        return batcher

    def collection(self, name: str | None, team: str | None) -> _Collection:
        """The collection that a request names.

        Raises:
            _Refused: it is not loaded, there is none of that name, or the team may not search it.
        """
        if self.status.status != "ready":
            raise _Refused(503, self.status.status, self.status.detail, _retry(RETRY_SECONDS))
        if name is None and len(self.collections) > 1:
            raise _Refused(400, "collection_missing", f"name a collection: {', '.join(self.collections)}")
        found = self.collections.get(name) if name is not None else next(iter(self.collections.values()))
        if found is None:
            raise _Refused(404, "no_such_collection", f"there is no collection {name!r}")
        if found.spec.teams and team not in found.spec.teams:
            raise _Refused(403, "not_yours", f"collection {found.spec.name} is not for this team")
        return found


def _opened(spec: CollectionSpec) -> IndexRetriever:
    """The retriever of a collection, its encoder warm."""
    retriever = open_retriever(spec.environment, spec.run_dir, spec.retrieval, show_progress=False)
    retriever.warm()
    return retriever


def create_app(spec: ServiceSpec, tokens: Tokens | None) -> FastAPI:
    """The service. Without ``tokens`` everybody is let in, and collections that name teams are for nobody."""
    service = _Service(spec)
    app = FastAPI(
        title="hopforge retriever", version="1", description=DESCRIPTION, lifespan=service.lifespan,
        responses={401: {"model": Refusal}} if tokens else {},
    )  # fmt: skip
    app.state.service = service
    _handle_refusals(app)
    bearer = HTTPBearer(auto_error=False, description="The token of a team.")

    async def team(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> str | None:
        if tokens is None:
            return None
        found = tokens.team(credentials.credentials) if credentials else None
        if found is None:
            raise _Refused(401, "unauthorized", "a team's bearer token is needed", {"WWW-Authenticate": "Bearer"})
        return found

    @app.post("/v1/search", responses=_refusals(400, 403, 404, 409, 422, 429, 503, 504), summary="Search")
    async def search(
        body: SearchBody,
        response: Response,
        team: Annotated[str | None, Depends(team)],
        digest: Annotated[
            str | None, Header(alias=DIGEST_HEADER, description="The corpus that must be searched; else 409.")
        ] = None,
    ) -> SearchAnswer:
        """Search a batch of queries. What is wrong with one query does not touch the others."""
        collection = service.collection(body.collection, team)
        name, retriever = collection.spec.name, collection.retriever
        if digest is not None and digest != retriever.corpus_digest:
            message = f"collection {name} searches corpus {retriever.corpus_digest}, not {digest}"
            raise _Refused(409, "other_corpus", message)
        asked = [query.request() for query in body.queries]
        refusals = [retriever.refusal(request) for request in asked]
        good = [request for request, refusal in zip(asked, refusals, strict=True) if refusal is None]
        seconds = body.deadline_ms / 1000 if body.deadline_ms else spec.deadline_seconds
        try:
            found = iter(await _searched(collection, good, body.k, seconds) if good else [])
        except _Refused as refused:
            service.metrics.requests.labels(name, refused.status).inc()
            raise
        service.metrics.requests.labels(name, 200).inc()
        service.metrics.queries.labels(name, team or "").inc(len(good))
        response.headers[DIGEST_HEADER] = retriever.corpus_digest
        results = tuple(
            Item(evidence=tuple(Hit.of(one) for one in next(found)))
            if refusal is None
            else Item(error=Fault(code="invalid_query", message=refusal))
            for refusal in refusals
        )
        return SearchAnswer(collection=name, corpus_digest=retriever.corpus_digest, results=results)

    @app.get("/v1/collections", responses=_refusals(503), summary="The collections this team may search")
    async def collections(team: Annotated[str | None, Depends(team)]) -> list[CollectionFacts]:
        if service.status.status != "ready":
            raise _Refused(503, service.status.status, service.status.detail, _retry(RETRY_SECONDS))
        return [c.facts() for c in service.collections.values() if not c.spec.teams or team in c.spec.teams]

    @app.get("/healthz", summary="Whether the process lives")
    async def healthz() -> Status:
        return service.status

    @app.get("/readyz", responses={503: {"model": Status}}, summary="Whether searches are answered")
    async def readyz(
        response: Response,
        digest: Annotated[str | None, Query(description="A corpus that must be among those served.")] = None,
    ) -> Status:
        status = service.status
        if status.status == "ready" and digest is not None:
            served = {collection.retriever.corpus_digest for collection in service.collections.values()}
            if digest not in served:
                status = Status(status="failed", detail=f"corpus {digest} is not served")
        response.status_code = 200 if status.status == "ready" else 503
        return status

    @app.get("/metrics", summary="For Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app


async def _searched(collection: _Collection, requests: list[SearchRequest], k: int, seconds: float) -> list[Any]:
    try:
        return await collection.batcher.search(requests, k, seconds)
    except Full as full:
        raise _Refused(429, "queue_full", str(full), _retry(full.retry_after)) from full
    except Stopping as error:
        raise _Refused(503, "stopping", "the service is about to end", _retry(RETRY_SECONDS)) from error
    except TimeoutError as error:
        raise _Refused(504, "deadline", f"no answer within {seconds:g} s") from error
    except RetrieverFault as error:
        raise _Refused(503, "retriever_fault", str(error), _retry(RETRY_SECONDS)) from error


def _handle_refusals(app: FastAPI) -> None:
    """Every answer that is no success has the same body."""

    def answer(status: int, code: str, message: str, headers: dict[str, str]) -> JSONResponse:
        refusal = Refusal(error=Fault(code=code, message=message))
        return JSONResponse(refusal.model_dump(), status, headers)

    @app.exception_handler(_Refused)
    async def refused(request: Request, error: _Refused) -> JSONResponse:
        return answer(error.status, error.code, error.message, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        told = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        return answer(422, "invalid_request", told, {})


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Refusal} for status in statuses}


def _retry(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}
