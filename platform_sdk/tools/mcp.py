"""The tools of a Model Context Protocol server (https://modelcontextprotocol.io), by the package ``mcp``."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from platform_sdk.config.tools import McpToolSpec
from platform_sdk.credentials import without_credentials
from platform_sdk.endpoints import CHECK_ADDRESS
from platform_sdk.errors import UserError
from platform_sdk.records import ToolCall, ToolResult
from platform_sdk.tools.base import ToolFault, arguments_model
from platform_sdk.tools.http import bearer

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from mcp import Client

logger = logging.getLogger(__name__)
_TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list[Any], "object": dict[str, Any],
}  # fmt: skip
_INVALID_ARGUMENTS = -32602
"""Code of JSON-RPC with which a server rejects a call's arguments."""


@dataclass(frozen=True)
class McpTool:
    """One tool of a server. Calls are sent one after another through the server's only session."""

    name: str
    description: str
    arguments: type[BaseModel]
    client: Client
    portal: BlockingPortal
    spec: McpToolSpec

    def call(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Call the server's tool.

        Raises:
            ToolFault: the server has ended, or a call took longer than the timeout.
        """
        return [self._result(call) for call in calls]

    def _result(self, call: ToolCall) -> ToolResult:
        fields = self.arguments.model_fields.values()
        required = {field.alias for field in fields if field.is_required()}
        # Null optional arguments are left out; a required argument may be nullable.
        arguments = {name: value for name, value in call.arguments.items() if value is not None or name in required}
        try:
            answer = self.portal.call(self.client.call_tool, self.name, arguments, self.spec.timeout)
        except Exception as error:  # a session ends in errors of any kind
            if getattr(error, "code", None) == _INVALID_ARGUMENTS:
                return ToolResult(text=f"Error : {error}"[: self.spec.max_characters], error=True)
            raise ToolFault(f"tool {self.name}: the MCP server failed: {type(error).__name__}: {error}") from error
        text = "\n".join(part.text for part in answer.content if part.type == "text")[: self.spec.max_characters]
        return ToolResult(text=f"Error : {text}" if answer.is_error else text, error=bool(answer.is_error))


@contextmanager
def open_mcp(spec: McpToolSpec) -> Iterator[list[McpTool]]:
    """Connect to a server, or start it, and list its tools.

    Raises:
        UserError: the server cannot be reached, or lacks a tool that the recipe names.
    """
    from anyio.from_thread import start_blocking_portal

    where = spec.url or " ".join(spec.command or ())
    with start_blocking_portal() as portal:
        try:
            session = portal.wrap_async_context_manager(_connected(spec))
            client = session.__enter__()
        except UserError:
            raise
        except Exception as error:  # of the transport, the program or the protocol
            remedy = "check that it runs" + (f", and {CHECK_ADDRESS}" if spec.url else "")
            raise UserError(f"MCP server {where}: cannot be opened: {_cause(error)}; {remedy}") from error
        try:
            try:
                offered = _offered(client, portal)
            except Exception as error:  # of the transport or the server
                raise UserError(f"MCP server {where}: lists no tools: {_cause(error)}; check the server") from error
            yield _chosen(spec, offered, client, portal, where)
        finally:
            try:
                session.__exit__(None, None, None)
            except Exception as error:  # the server is gone, so the session cannot end as agreed
                logger.warning("MCP server %s: its session could not be closed: %s", where, _cause(error))


@asynccontextmanager
async def _connected(spec: McpToolSpec) -> AsyncIterator[Client]:
    from mcp import Client, StdioServerParameters

    async with AsyncExitStack() as stack:
        if spec.command is not None:
            server: Any = StdioServerParameters(command=spec.command[0], args=list(spec.command[1:]))
        elif spec.token_env is not None:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            http = httpx2.AsyncClient(headers=bearer(spec.token_env, str(spec.url)), timeout=spec.timeout)
            server = streamable_http_client(str(spec.url), http_client=await stack.enter_async_context(http))
        else:
            server = spec.url
        yield await stack.enter_async_context(Client(server, read_timeout_seconds=spec.timeout))


def _offered(client: Client, portal: BlockingPortal) -> dict[str, Any]:
    offered: dict[str, Any] = {}
    cursor: str | None = None
    while True:
        page = portal.call(partial(client.list_tools, cursor=cursor))
        offered |= {tool.name: tool for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            return offered


def _chosen(
    spec: McpToolSpec, offered: dict[str, Any], client: Client, portal: BlockingPortal, where: str
) -> list[McpTool]:
    wanted = spec.tools if spec.tools is not None else tuple(offered)
    if missing := [name for name in wanted if name not in offered]:
        raise UserError(f"MCP server {where}: has no tool {missing[0]}; it has {', '.join(offered) or 'none'}")
    return [
        McpTool(
            name, offered[name].description or "", _arguments(name, offered[name].input_schema), client, portal, spec
        )
        for name in wanted
    ]


def _arguments(name: str, schema: dict[str, Any]) -> type[BaseModel]:
    """Return a model of a tool's arguments. Its fields have the schema's JSON types; the server checks the rest."""
    required = schema.get("required", [])
    arguments: list[tuple[str, Any, Any, str | None]] = []
    for argument, about in schema.get("properties", {}).items():
        about = about if isinstance(about, dict) else {}  # true accepts any value
        form = about.get("type")
        kind = _TYPES.get(form, Any) if isinstance(form, str) else Any
        default = ... if argument in required else None
        arguments.append((argument, kind if default is ... else kind | None, default, about.get("description")))
    return arguments_model(name, arguments)


def _cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return without_credentials(f"{type(error).__name__}: {error}")
