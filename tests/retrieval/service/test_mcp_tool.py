"""The service's search as a tool over MCP, asked by the client of the mcp package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Triple
from platform_sdk.retrieval.remote import AUTHORITY, RemoteRetriever
from platform_sdk.retrieval.service.tokens import Tokens
from platform_sdk.sampling.rollout import SearchRequest
from tests.retrieval.processes import Embeddings, prepare_world, served
from tests.retrieval.service.test_tls import Authority

TOKENS = {"red": "red-secret-token", "blue": "blue-secret-token"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A service with a collection for everybody and one of team blue."""
    prepare_world(folder / "world")
    for team, token in TOKENS.items():
        (folder / "tokens").mkdir(exist_ok=True)
        (folder / "tokens" / team).write_text(token + "\n")

    def collection(name: str, teams: tuple[str, ...]) -> CollectionSpec:
        retrieval = RetrievalSpec(method="lexical")
        return CollectionSpec(
            name=name, run_dir=folder / "world", environment="world-text", retrieval=retrieval, teams=teams
        )

    spec = ServiceSpec(collections=(collection("world", ("red", "blue")), collection("own", ("blue",))))
    with served(spec, tokens=Tokens(folder / "tokens")) as url:
        yield url


def over_mcp(url: str, token: str, ask: Callable[[Client], Any], **options: Any) -> Any:
    async def session() -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, **options) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
        ):
            return await ask(client)

    with ThreadPoolExecutor(1) as aside:  # a browser of other tests may have left an event loop in this thread
        return aside.submit(anyio.run, session).result()


def search(**arguments: Any) -> Callable[[Client], Any]:
    return lambda client: client.call_tool("search", arguments)


def test_tool_finds_what_the_api_finds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPFORGE_RETRIEVER_TOKEN", TOKENS["red"])
    with RemoteRetriever(url, collection="world") as remote:
        [wanted] = remote.search([SearchRequest("Who directed it ?")], 3)
    found = over_mcp(url, TOKENS["red"], search(query="Who directed it ?", k=3))
    assert [item["id"] for item in found.structured_content["results"]] == [item.id for item in wanted]
    assert [part.text for part in found.content] == [f"{item.title}\n{item.text}" for item in wanted]
    default = over_mcp(url, TOKENS["red"], search(query="is a film"))
    assert len(default.content) == 5


def test_team_sees_its_own_collections_only(url: str) -> None:
    def schema(team: str) -> dict[str, Any]:
        [tool] = over_mcp(url, TOKENS[team], lambda client: client.list_tools()).tools
        assert tool.name == "search"
        return tool.input_schema

    assert set(schema("red")["properties"]) == {"query", "k"}
    assert schema("blue")["properties"]["collection"]["enum"] == ["world", "own"]
    assert over_mcp(url, TOKENS["blue"], search(query="is a film", collection="own")).is_error is False
    refused = over_mcp(url, TOKENS["red"], search(query="is a film", collection="own"))
    assert (refused.is_error, refused.content[0].text) == (True, "there is no collection 'own' for this team")
    unnamed = over_mcp(url, TOKENS["blue"], search(query="is a film"))
    assert (unnamed.is_error, unnamed.content[0].text) == (True, "name a collection: world, own")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"query": "x", "k": 101}, "k: Input should be less than or equal to 100"),
        ({"query": 5}, "query: Input should be a valid string"),
        ({"k": 1}, "query: Field required"),
        ({"query": "x" * 32_769}, "query: String should have at most 32768 characters"),
        ({"query": "x", "corpus": "y"}, "corpus: Extra inputs are not permitted"),
    ],
)
def test_malformed_search_is_an_error_of_the_tool(url: str, arguments: dict[str, Any], reason: str) -> None:
    refused = over_mcp(url, TOKENS["red"], search(**arguments))
    assert (refused.is_error, refused.content[0].text) == (True, reason)


@pytest.mark.parametrize("token", ["", "red-secret-tokeN", "red-secret-token2"])
def test_wrong_token_opens_no_session(url: str, token: str) -> None:
    if token:
        with pytest.raises(BaseExceptionGroup) as caught:
            over_mcp(url, token, search(query="x"))
        assert caught.group_contains(MCPError, match="error response", depth=None)
    body = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    given = {"Authorization": f"Bearer {token}"} if token else {}
    headers = {"Content-Type": "application/json", **given}
    answer = httpx.post(f"{url}/mcp", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")


def test_requests_of_other_methods_and_sizes_are_refused(url: str) -> None:
    headers = {"Authorization": f"Bearer {TOKENS['red']}", "Content-Type": "application/json"}
    assert httpx.get(f"{url}/mcp", headers=headers).status_code == 405
    large = httpx.post(f"{url}/mcp", headers=headers, content=b" " * (2**20 + 1))
    assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")


def test_tool_is_served_over_https(tmp_path: Path, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    authority.create()
    retrieval = RetrievalSpec(method="lexical")
    world = CollectionSpec(name="world", run_dir=folder / "world", environment="world-text", retrieval=retrieval)
    trusted = httpx2.create_ssl_context()
    trusted.load_verify_locations(authority.certificate)
    monkeypatch.setenv(AUTHORITY, str(authority.certificate))  # of the readiness probe of ``served``
    with served(ServiceSpec(collections=(world,)), certificate=authority.issue("here")) as secured:
        assert secured.startswith("https://")
        assert len(over_mcp(secured, "any", search(query="is a film", k=2), verify=trusted).content) == 2
        with pytest.raises(BaseExceptionGroup) as caught:
            over_mcp(secured, "any", search(query="is a film", k=2))
        assert caught.group_contains(httpx2.ConnectError, match="certificate", depth=None)


def test_collection_that_needs_more_than_a_query_takes_a_scope(folder: Path, url: str) -> None:
    fact = next(iter(read_jsonl(folder / "world/corpus/triples.jsonl", Triple)))
    with Embeddings() as encoder:
        retrieval = encoder.spec()
        graph = CollectionSpec(name="graph", run_dir=folder / "world", environment="world-kg", retrieval=retrieval)
        with served(ServiceSpec(collections=(graph,))) as open_to_all:
            [tool] = over_mcp(open_to_all, "any", lambda client: client.list_tools()).tools
            found = over_mcp(open_to_all, "any", search(query="Who?", k=100, scope={"head": fact.head}))
            refused = over_mcp(open_to_all, "any", search(query="Who?"))
    assert tool.input_schema["properties"]["scope"]["properties"] == {"head": {"type": "string"}}
    assert fact.text in [part.text.partition("\n")[2] for part in found.content]
    assert (refused.is_error, "needs head in the scope" in refused.content[0].text) == (True, True)
