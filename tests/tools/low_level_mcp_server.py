"""An MCP server over stdin and stdout whose schema has odd names, and which rejects arguments by JSON-RPC errors.

``python low_level_mcp_server.py broken`` cannot list its tools.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

ARGUMENTS = {"schema": {"type": "string"}, "model_dump": True, "_x": {}, "year": {"type": ["integer", "null"]}}
SCHEMA = {"type": "object", "properties": ARGUMENTS}


async def tools(_context: Any, _params: Any) -> ListToolsResult:
    if "broken" in sys.argv:
        raise MCPError(-32603, "no database")
    return ListToolsResult(tools=[Tool(name="odd", input_schema=SCHEMA | {"required": ["schema", "year"]})])


async def call(_context: Any, params: Any) -> CallToolResult:
    if params.arguments["schema"] == "bad":
        raise MCPError(-32602, "schema must be good")
    return CallToolResult(content=[TextContent(text=str(sorted(params.arguments.items())))])


async def main() -> None:
    server: Server[Any] = Server("odd", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
