"""MCP server of the retriever service (streamable HTTP): the tool ``search``, with the tokens and bounds of the API."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Request, Response
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from pydantic import Field, ValidationError
from starlette.types import Message, Receive, Scope, Send

from platform_sdk.records import SEARCH, Evidence
from platform_sdk.retrieval.method import load_method
from platform_sdk.retrieval.service.hosting import Host
from platform_sdk.retrieval.service.metrics import Metrics
from platform_sdk.retrieval.service.refusals import RequestError, invalid, unforeseen
from platform_sdk.retrieval.wire import MAX_BYTES, MAX_CHARACTERS, MAX_HITS, Query, Whole

log = logging.getLogger(__name__)

PATH = "/mcp"
DEFAULT_HITS = 5
_TEAM = "hopforge.team"


class _Arguments(Query):
    k: Whole = Field(DEFAULT_HITS, ge=1, le=MAX_HITS)
    collection: str | None = None


class McpTool:
    """The tool of a service's collections; ``seconds`` is the time limit of a search."""

    def __init__(self, host: Host, metrics: Metrics, seconds: float) -> None:
        self._host, self._metrics, self._seconds = host, metrics, seconds
        server: Server[Any] = Server("hopforge retriever", on_list_tools=self._tools, on_call_tool=self._call)
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=MAX_BYTES
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer requests inside the context."""
        async with self._manager.run():
            yield

    def response(self, request: Request, body: bytes, team: str | None) -> Response:
        """Return the response to an authenticated request whose body was read."""
        request.scope[_TEAM] = team
        return _Delegated(self._manager, body)

    async def _tools(self, context: Any, _: Any) -> ListToolsResult:
        listed = self._host.collections_of(context.request.scope[_TEAM])
        names = [one.name for one in listed]
        fields: dict[str, Any] = {
            "query": {"type": "string", "description": "text to search for", "maxLength": MAX_CHARACTERS},
            "k": {
                "type": "integer", "description": "number of results", "default": DEFAULT_HITS, "minimum": 1,
                "maximum": MAX_HITS,
            },
        }  # fmt: skip
        required = ["query"]
        if keys := sorted({key for one in listed if one.facts for key in load_method(one.facts.method).scope}):
            fields["scope"] = {
                "type": "object", "description": "further input that some collections need",
                "properties": {key: {"type": "string"} for key in keys}, "additionalProperties": {"type": "string"},
            }  # fmt: skip
        if len(names) > 1:
            fields["collection"] = {"type": "string", "description": "what is searched", "enum": names}
            required.append("collection")
        schema = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
        about = f"Search {', '.join(names) or 'no collection'}; returns the best passages"
        return ListToolsResult(tools=[Tool(name=SEARCH, description=about, input_schema=schema)])

    async def _call(self, context: Any, params: Any) -> CallToolResult:
        try:
            if params.name != SEARCH:
                raise RequestError(404, "no_such_tool", f"unknown tool: {params.name}; the tool is {SEARCH}")
            found = await self._search(params.arguments or {}, context.request.scope[_TEAM])
        except RequestError as error:
            return self._refused(error)
        except Exception as error:
            log.exception("a search over MCP failed")
            return self._refused(unforeseen(error))
        texts = [f"{item.title}\n{item.text}" if item.title else item.text for item in found]
        results = [item.model_dump(mode="json") for item in found]
        content = [TextContent(text=text) for text in texts]
        return CallToolResult(content=[*content], structured_content={"results": results})

    def _refused(self, error: RequestError) -> CallToolResult:
        self._metrics.errors.labels(error.code).inc()
        return CallToolResult(content=[TextContent(text=error.message)], is_error=True)

    async def _search(self, arguments: dict[str, Any], team: str | None) -> list[Evidence]:
        try:
            body = _Arguments.model_validate(arguments)
        except ValidationError as error:
            raise invalid(error) from error
        collection = self._host.collection(body.collection, team)
        request = body.request()
        if fault := collection.retriever.refusal(request):
            raise RequestError(422, "invalid_query", fault)
        [found] = await collection.search([request], body.k, self._seconds)
        self._metrics.queries.labels(collection.facts.name, team or "").inc()
        return found


class _Delegated(Response):
    """Response that the MCP server writes; it reads the body that was already received."""

    def __init__(self, manager: StreamableHTTPSessionManager, body: bytes) -> None:
        super().__init__()
        self._manager, self._content = manager, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left: list[Message] = [{"type": "http.request", "body": self._content, "more_body": False}]

        async def replayed() -> Message:
            return left.pop() if left else await receive()

        await self._manager.handle_request(scope, replayed, send)
