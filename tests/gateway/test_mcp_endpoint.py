"""Searches over MCP with the client of the mcp package, recorded as evidence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import httpx
from mcp import Client

from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.gateway.serving import play
from tests.gateway.test_chat import OPENING, ask


def over_mcp(session: Session, name: str, arguments: dict[str, Any]) -> Any:
    async def call() -> Any:
        async with Client(session.mcp_url) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["search"]
            return await client.call_tool(name, arguments)

    with ThreadPoolExecutor(1) as aside:  # a browser of other tests may have left an event loop in this thread
        return aside.submit(anyio.run, call).result()


def test_searches_over_mcp_are_recorded(gateway: Gateway, engine: TransformersEngine) -> None:
    def program(session: Session) -> None:
        found = over_mcp(session, "search", {"query": "Amberfall", "k": 2})
        assert [part.text for part in found.content] == ["Amberfall 0", "Amberfall 1"]
        assert [item["id"] for item in found.structured_content["results"]] == ["Amberfall0", "Amberfall1"]
        ask(session, OPENING)

    [(session, _)] = play(gateway, engine, program)
    [one] = session.trajectories()
    assert [item.id for item in one.evidence] == ["Amberfall0", "Amberfall1"]
    assert one.turns[0].queries == ("Amberfall",)


def test_malformed_searches_are_errors_of_the_tool(gateway: Gateway) -> None:
    session = gateway.open(seed=1, name="Q#0")
    for name, arguments, reason in [
        ("search", {"query": " "}, "query must be"), ("search", {"query": "x", "k": 101}, "from 1 to 100"),
        ("answers", {}, "unknown tool"),
    ]:  # fmt: skip
        answer = over_mcp(session, name, arguments)
        assert answer.is_error
        assert reason in answer.content[0].text
    session.close()
    assert httpx.post(session.mcp_url, json={}).status_code == 401
