"""An MCP server with two tools: ``python mcp_server.py`` speaks over stdin and stdout, with a port over HTTP."""

from __future__ import annotations

import sys

from mcp.server import MCPServer

server = MCPServer("films")
YEARS = {"Amberfall": 1923, "Night Lake": 1957}


@server.tool()
def release_year(film: str, offset: int = 0) -> str:
    """Give the year in which a film was released."""
    if film not in YEARS:
        raise ValueError(f"no film {film}")
    return str(YEARS[film] + offset)


@server.tool()
def films() -> str:
    """List all films."""
    return ", ".join(YEARS)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
