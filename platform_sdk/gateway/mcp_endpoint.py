"""MCP endpoint of every session (streamable HTTP): the tool ``search``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from platform_sdk.gateway.bodies import read_body
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.sessions import Session
from platform_sdk.records import SEARCH
from platform_sdk.retrieval.wire import MAX_CHARACTERS

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

MAX_RESULTS = 100
_SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "text to search for"},
        "k": {
            "type": "integer",
            "description": "number of results",
            "default": 5,
            "minimum": 1,
            "maximum": MAX_RESULTS,
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


def search_arguments(body: dict[str, Any]) -> tuple[str, int]:
    """Return the query and the number of results of a search.

    Raises:
        Refusal: a field is missing, malformed or unknown.
    """
    query, k = body.get("query"), body.get("k", 5)
    if not isinstance(query, str) or not query.strip():
        raise Refusal(400, "query must be a text that is not empty", "query")
    if len(query) > MAX_CHARACTERS:
        raise Refusal(400, f"query has {len(query)} characters; send at most {MAX_CHARACTERS}", "query")
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MAX_RESULTS:
        raise Refusal(400, f"k must be a whole number from 1 to {MAX_RESULTS}", "k")
    if unknown := set(body) - {"query", "k"}:
        raise Refusal(400, f"unsupported parameter: {min(unknown)}", min(unknown))
    return query, k


class McpEndpoint:
    """ASGI application of the sessions' MCP servers; ``session_of`` returns the session of a token or refuses."""

    def __init__(self, session_of: Callable[[str], Session]) -> None:
        self._session_of = session_of
        self.manager = _manager(session_of)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            session = self._session_of(scope["path_params"]["token"])
            session.enter()
            try:
                body = await read_body(Request(scope, receive), session.bounds.request_bytes)
                await self.manager.handle_request(scope, _replayed(body, receive), send)
            finally:
                session.leave()
        except Refusal as refusal:
            await JSONResponse(refusal.body(), refusal.status)(scope, receive, send)
        except ClientDisconnect:
            pass


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return the messages of a request whose body was read."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return left.pop() if left else await receive()

    return replayed


def _manager(session_of: Callable[[str], Session]) -> StreamableHTTPSessionManager:
    from mcp.server.lowlevel.server import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

    async def tools(_context: Any, _params: Any) -> ListToolsResult:
        about = "Search the corpus; returns the best passages"
        return ListToolsResult(tools=[Tool(name=SEARCH, description=about, input_schema=_SCHEMA)])

    async def call(context: Any, params: Any) -> CallToolResult:
        try:
            if params.name != SEARCH:
                raise Refusal(400, f"unknown tool: {params.name}; the tool is {SEARCH}")
            session = session_of(context.request.path_params["token"])
            found = await asyncio.wrap_future(session.search(*search_arguments(params.arguments or {})))
        except Refusal as refusal:
            return CallToolResult(content=[TextContent(text=refusal.message)], is_error=True)
        texts = [f"{item.title}\n{item.text}" if item.title else item.text for item in found]
        results = [item.model_dump(mode="json") for item in found]
        content = [TextContent(text=text) for text in texts]
        return CallToolResult(content=[*content], structured_content={"results": results})

    server: Server[Any] = Server("hopforge", on_list_tools=tools, on_call_tool=call)
    # The body was read under the session's own bound.
    return StreamableHTTPSessionManager(server, json_response=True, stateless=True, max_request_body_size=sys.maxsize)
