"""Every HTTP client with a proxy in the environment that it cannot use: one error with the remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from platform_sdk.config.tools import McpToolSpec
from platform_sdk.endpoints import open_client
from platform_sdk.errors import UserError
from platform_sdk.retrieval.remote import RemoteRetriever
from platform_sdk.sampling import openai_engine
from platform_sdk.tools.mcp import open_mcp
from platform_sdk.tracking.log.client import open_log
from platform_sdk.tracking.server import Server

URL = "http://service.invalid:8000"
PROXIES = {
    "socks5://127.0.0.1:1": "Using SOCKS proxy, but the 'socksio' package is not installed",
    "odd://proxy": "Unknown scheme for proxy URL",
    "http://proxy:port": "Invalid port: 'port'",
}


def sample() -> None:
    openai_engine.OpenAIEngine(URL, Path("model"))


def search() -> None:
    RemoteRetriever(URL)


def judge() -> None:
    open_client(URL, URL, "", retries=0, timeout=1)


def log() -> None:
    open_log(Path()).read()


def use_tools() -> None:
    with open_mcp(McpToolSpec(type="mcp", url=URL)):
        pass


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("client", [sample, search, judge, log, use_tools])
def test_proxy_that_a_client_cannot_use_is_one_error(
    client: Callable[[], None], proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_engine, "load_tokenizer", lambda _: None)
    monkeypatch.setitem(sys.modules, "socksio", None)  # as if it were not installed
    monkeypatch.setenv("HOPFORGE_LOG", URL)
    for kind in ("all", "http", "https", "no"):
        for name in (f"{kind}_proxy", f"{kind}_proxy".upper()):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(UserError) as caught:
        client()
    message = str(caught.value)
    assert URL in message
    assert PROXIES[proxy] in message
    assert message.endswith("correct the URL, or HTTP_PROXY, HTTPS_PROXY and ALL_PROXY if the environment sets them")


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "http://127.0.0.1:1"])
def test_error_of_mlflow_names_the_proxy_of_the_request(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(UserError, match="check MLFLOW_TRACKING_URI and the proxy in HTTP_PROXY or HTTPS_PROXY$"):
        Server(URL).check()
    with pytest.raises(UserError, match="check MLFLOW_TRACKING_URI$"):
        Server("http://127.0.0.1:1").check()
