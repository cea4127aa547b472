"""The retriever service: ``POST /v1/search``, the same search over MCP at ``/mcp``, and the operational routes.

A failed dependency gives 503 with Retry-After, never an empty result. A request is authenticated before its body is
read, and a body is read only up to the size limit.
"""

# No "from __future__ import annotations": FastAPI could not resolve the dependencies local to create_app.

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from platform_sdk.config.service import ServiceSpec
from platform_sdk.records import Evidence
from platform_sdk.retrieval.service.hosting import Host
from platform_sdk.retrieval.service.mcp_tool import PATH as MCP
from platform_sdk.retrieval.service.mcp_tool import McpTool
from platform_sdk.retrieval.service.metrics import Metrics, RequestCounter
from platform_sdk.retrieval.service.refusals import (
    OneLength,
    RequestError,
    described,
    handle_refusals,
    invalid,
    later,
    unauthorised,
)
from platform_sdk.retrieval.service.tokens import Tokens, UnreadableTokens
from platform_sdk.retrieval.wire import (
    DIGEST_HEADER,
    MAX_BYTES,
    Fault,
    Item,
    ListedCollection,
    SearchAnswer,
    SearchBody,
    Status,
    parse_body,
)

BODY_SECONDS = 10.0
GONE = 499  # status in the metrics of a caller who disconnected; never sent
DESCRIPTION = """Searches collections of passages, triples or other evidence of a retrieval method.

Queries that arrive at the same time are encoded and searched together. An answer other than 200 has the body of
`Refusal`; after 429 and 503 retry after the seconds in `Retry-After`."""

Team = Callable[..., Awaitable[str | None]]


def create_app(spec: ServiceSpec, tokens: Tokens | None, metrics: Metrics) -> FastAPI:
    """Build the service. Without ``tokens`` every caller may search, except in collections that name teams.

    The OpenAPI document is served only without ``tokens``; pages that load external scripts are never served.
    """
    host = Host(spec, metrics)
    tool = McpTool(host, metrics, spec.deadline_seconds)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with host.open(), tool.open():  # /healthz answers meanwhile
            yield

    app = FastAPI(
        title="hopforge retriever", version="1", description=DESCRIPTION, lifespan=lifespan,
        docs_url=None, redoc_url=None, openapi_url=None if tokens else "/openapi.json",
    )  # fmt: skip
    app.state.host = host
    handle_refusals(app)
    team = _team(tokens)
    _add_searching(app, spec, host, metrics, team, [401] if tokens else [])
    _add_mcp(app, tool, team)
    _add_operations(app, host, tokens)
    _describe_body(app)
    app.add_middleware(OneLength)
    app.add_middleware(RequestCounter, metrics=metrics, routes=frozenset({*app.openapi()["paths"], MCP}))
    return app


def _team(tokens: Tokens | None) -> Team:
    """Return the dependency that authenticates the team."""
    if tokens is None:

        async def everybody() -> str | None:
            return None

        return everybody
    bearer = HTTPBearer(auto_error=False, description="The token of a team.")

    async def team(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> str | None:
        return _owner(tokens, credentials.credentials if credentials else "")

    return team


def _owner(tokens: Tokens, token: str) -> str:
    """Return the team of a token.

    Raises:
        RequestError: the token is unknown, or the tokens cannot be read.
    """
    try:
        found = tokens.team(token)
    except UnreadableTokens as error:
        raise later(503, "tokens_unreadable", "the service cannot read its tokens") from error
    if found is None:
        raise unauthorised()
    return found


def _add_searching(
    app: FastAPI, spec: ServiceSpec, host: Host, metrics: Metrics, team: Team, strangers: list[int]
) -> None:
    @app.post(
        "/v1/search", summary="Search", response_model=SearchAnswer,
        responses=described(400, *strangers, 404, 408, 409, 413, 415, 422, 429, 500, 503, 504)
        | {200: {"headers": {DIGEST_HEADER: {"description": "The corpus that was searched.", "required": True,
                                             "schema": {"type": "string"}}}}},
    )  # fmt: skip
    async def search(
        request: Request,
        team: Annotated[str | None, Depends(team)],
        digest: Annotated[
            str | None, Header(alias=DIGEST_HEADER, description="Required corpus; 409 for another one.")
        ] = None,
    ) -> Response:
        """Search a batch of queries. An invalid query does not affect the others."""
        try:
            raw = await _body(request)
            body = parse_body(raw)
        except ValidationError as error:
            raise invalid(error) from error
        except ClientDisconnect:
            return Response(status_code=GONE)
        collection = host.collection(body.collection, team)
        facts = collection.facts
        if digest is not None and digest != facts.corpus_digest:
            message = f"collection {facts.name} searches corpus {facts.corpus_digest}, not {digest}"
            raise RequestError(409, "other_corpus", message)
        asked = [query.request() for query in body.queries]
        wrong = [collection.retriever.refusal(one) for one in asked]
        good = [one for one, fault in zip(asked, wrong, strict=True) if fault is None]
        seconds = body.deadline_ms / 1000 if body.deadline_ms else spec.deadline_seconds
        lists = await _unless_gone(request, collection.search(good, body.k, seconds)) if good else []
        if lists is None:
            return Response(status_code=GONE)
        found = iter(lists)
        metrics.queries.labels(facts.name, team or "").inc(len(good))
        metrics.errors.labels("invalid_query").inc(len(asked) - len(good))
        results = tuple(
            Item(evidence=tuple(next(found)))
            if fault is None
            else Item(error=Fault(code="invalid_query", message=fault))
            for fault in wrong
        )
        answer = SearchAnswer(
            collection=facts.name, corpus_digest=facts.corpus_digest, encoder=facts.encoder, results=results
        )
        return Response(
            answer.model_dump_json(), media_type="application/json", headers={DIGEST_HEADER: facts.corpus_digest}
        )

    @app.get("/v1/collections", responses=described(*strangers, 500, 503), summary="The collections a team may search")
    async def collections(team: Annotated[str | None, Depends(team)]) -> list[ListedCollection]:
        return host.collections_of(team)


def _add_mcp(app: FastAPI, tool: McpTool, team: Team) -> None:
    # MCP describes itself, so the route is not in OpenAPI.
    @app.post(MCP, include_in_schema=False)
    async def mcp(request: Request, team: Annotated[str | None, Depends(team)]) -> Response:
        try:
            return tool.response(request, await _body(request), team)
        except ClientDisconnect:
            return Response(status_code=GONE)


def _add_operations(app: FastAPI, host: Host, tokens: Tokens | None) -> None:
    @app.get("/healthz", summary="Liveness of the process")
    async def healthz() -> Status:
        return Status(status=host.status.status)

    @app.get(
        "/readyz", summary="Readiness for searches",
        responses=described(*([401] if tokens else []), 404, 409, 422)
        | {503: {"model": Status, "description": "Not ready, with the reason."}},
    )  # fmt: skip
    async def readyz(
        response: Response,
        digest: Annotated[str | None, Query(description="Required corpus; 409 if it is not served.")] = None,
        collection: Annotated[str | None, Query(description="Report on this collection only.")] = None,
        authorization: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> Status:
        """Report readiness: without a collection, ready when every collection that can be opened is. `detail` lists
        the team's collections that cannot; their searches get 503, and opening them is retried. If tokens are required,
        a caller without one, e.g. a Kubernetes probe, gets only the status.
        """
        if tokens is None:
            status = host.readiness(collection, digest, None)
        elif authorization:
            team = _owner(tokens, get_authorization_scheme_param(authorization)[1])
            status = host.readiness(collection, digest, team)
        elif collection is None and digest is None:
            status = Status(status=host.status.status)
        else:
            raise unauthorised()
        response.status_code = 200 if status.status == "ready" else 503
        return status


async def _body(request: Request) -> bytes:
    """Read the body, bounded in length and time.

    Raises:
        RequestError: the body exceeds the bounds, or its Content-Type is not JSON.
        ClientDisconnect: the client disconnected.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "not_json", "send the body as Content-Type: application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise RequestError(
                        413, "body_too_large", f"a body may have {MAX_BYTES} bytes; send several requests"
                    )
    except TimeoutError as error:
        raise RequestError(408, "slow_body", f"the body did not arrive within {BODY_SECONDS:g} s") from error
    return bytes(body)


async def _unless_gone(request: Request, search: Awaitable[list[list[Evidence]]]) -> list[list[Evidence]] | None:
    """Return the result of ``search``, or cancel it and return None if the caller has disconnected."""
    searching = asyncio.ensure_future(search)
    going = asyncio.ensure_future(request.receive())  # after the body only a disconnect follows
    try:
        await asyncio.wait((searching, going), return_when=asyncio.FIRST_COMPLETED)
        return await searching if searching.done() else None
    finally:
        searching.cancel()
        going.cancel()


def _describe_body(app: FastAPI) -> None:
    """Add the body of a search to OpenAPI, since the route reads it only after authentication."""
    schema = SearchBody.model_json_schema(ref_template="#/components/schemas/{model}")
    document: dict[str, Any] = app.openapi()  # cached by FastAPI
    document["components"]["schemas"] |= schema.pop("$defs") | {"SearchBody": schema}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/SearchBody"}}}
    document["paths"]["/v1/search"]["post"]["requestBody"] = {"required": True, "content": content}
