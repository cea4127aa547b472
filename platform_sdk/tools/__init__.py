"""Tools that agents call: search, calculator, Python functions, HTTP endpoints and MCP servers."""
