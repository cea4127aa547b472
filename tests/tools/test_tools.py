"""Every tool that comes with hopforge, opened from its settings and called as an agent calls it."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from platform_sdk.config.tools import ToolSpec
from platform_sdk.errors import UserError
from platform_sdk.methods.react.settings import AgentSpec
from platform_sdk.records import Evidence, ToolCall, ToolResult
from platform_sdk.sampling.rollout import SearchRequest, ToolFault, no_search
from platform_sdk.tools.base import Tool, plain_argument
from platform_sdk.tools.calculator import evaluate
from platform_sdk.tools.load import open_tools
from tests.http_server import HttpRequest, HttpResponse, HttpServer
from tests.process_watch import free_port

SPEC: TypeAdapter[Any] = TypeAdapter(ToolSpec)


@contextmanager
def opened(*specs: dict[str, Any], search: Any = no_search) -> Iterator[dict[str, Tool]]:
    with open_tools([SPEC.validate_python(spec) for spec in specs], search) as tools:
        yield tools


def call(tool: Tool, **arguments: Any) -> ToolResult:
    given = tool.arguments.model_validate(arguments).model_dump(mode="json", exclude_unset=True)
    [result] = tool.call([ToolCall(tool=tool.name, arguments=given)])
    return result


expressions = st.recursive(
    st.one_of(st.integers(0, 999).map(str), st.floats(0, 99, allow_nan=False).map(lambda x: f"{x:.3f}")),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "<", ">=", "=="]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        inner.map(lambda one: f"-{one}"),
        st.tuples(inner, inner).map(lambda pair: f"max({pair[0]}, {pair[1]})"),
    ),
    max_leaves=8,
)


@given(expressions)
def test_calculator_agrees_with_python(expression: str) -> None:
    try:
        expected = eval(expression, {"__builtins__": {}, "max": max})  # written by the test itself
    except (ZeroDivisionError, OverflowError):
        with pytest.raises(ArithmeticError):
            evaluate(expression)
        return
    if math.isfinite(expected):
        assert evaluate(expression) == expected


@given(st.text(alphabet="0123456789+-*/().%^ abemx_,[]'\"=<>:", max_size=40))
def test_calculator_answers_any_text_with_a_number_or_an_arithmetic_error(text: str) -> None:
    with suppress(ArithmeticError):
        assert math.isfinite(evaluate(text))


@pytest.mark.parametrize(
    ("expression", "text", "error"),
    [
        ("1957 - 1923", "34", False), ("7 / 2", "3.5", False), ("6 / 2", "3", False), ("3 > 2", "yes", False),
        ("2 ^ 10", "1024", False), ("sqrt(16)", "4", False), ("9 ** 9 ** 9", "Error : the value is too large", True),
        ("1 / 0", "Error : division by zero", True), ("__import__('os')", "Error : not an arithmetic expression", True),
        ("(-8) ** 0.5", "Error : the value is no finite real number", True), ("'a' * 9", "Error", True),
        ("1 ** 5000", "1", False), ("(-1) ** 2001", "-1", False), ("1.01 ** 1100 < 56801", "yes", False),
        ("0.5 ** 5000", "0", False), ("2 ** 996 > 10 ** 299", "yes", False), ("round(7, -9 ** 8)", "Error : the", True),
        ("9 ** 300 * 9 ** 300", "Error : the value is too large", True), ("round(2.5)", "2", False),
        ("246913578021 / 2", "123456789010.5", False), ("sqrt(-4) > 1", "Error : the value is no finite real", True),
        ("0.1 + 0.2", "0.3", False), ("1 / 3", "0.3333333333", False), ("sqrt(0)", "0", False),
        ("2.0 ** 60", "1.15292150460685e+18", False),
        ("(" * 90 + "1" + ")" * 90, "1", False), ("1e308 * 10", "Error : the value is no finite real number", True),
    ],
)  # fmt: skip
def test_calculator_writes_results_for_agents(expression: str, text: str, error: bool) -> None:
    with opened({"type": "calculator"}) as tools:
        result = call(tools["calculator"], expression=expression)
    assert result.text.startswith(text)
    assert result.error is error


def test_search_answers_a_batch_in_one_request_with_its_scope() -> None:
    asked: list[list[SearchRequest]] = []

    def search(requests: Any, k: int) -> list[list[Evidence]]:
        asked.append(list(requests))
        return [[Evidence(kind="passage", id=r.query, title=r.query, text="t", score=1.0)] * k for r in requests]

    with opened({"type": "search", "top_k": 2}, search=search) as tools:
        calls = [ToolCall(tool="search", arguments={"query": word, "question_id": "q"}) for word in "ab"]
        results = tools["search"].call(calls)
    assert asked == [[SearchRequest("a", {"question_id": "q"}), SearchRequest("b", {"question_id": "q"})]]
    assert [[item.id for item in result.evidence] for result in results] == [["a", "a"], ["b", "b"]]


def test_function_takes_its_name_arguments_and_description_from_its_definition() -> None:
    with opened({"type": "function", "function": "tests.tools.functions:days_between"}) as tools:
        tool = tools["days_between"]
        assert tool.description == "Count the days between two ISO dates."
        assert set(tool.arguments.model_json_schema()["properties"]) == {"first", "second", "absolute"}
        assert plain_argument(tool.arguments) is None
        assert call(tool, first="2024-03-01", second="2024-02-01") == ToolResult(text="29", figures={"value": 29.0})
        assert call(tool, first="2024-03-01", second="2024-02-01", absolute=False).text == "-29"
        failed = call(tool, first="soon", second="2024-02-01")
        assert failed.error
        assert "Invalid isoformat string" in failed.text


def test_function_may_return_a_whole_result_or_be_unavailable() -> None:
    specs = [{"type": "function", "function": f"tests.tools.functions:{name}"} for name in ("whole", "unavailable")]
    with opened(*specs) as tools:
        assert call(tools["whole"], word="abc").figures == {"letters": 3}
        assert call(tools["whole"], word="\ud800b") == ToolResult(text="?b", figures={"letters": 2})
        nameless = call(tools["whole"], word="")
        assert (nameless.error, nameless.figures) == (True, {})
        assert "Input should be a finite number" in nameless.text
        with pytest.raises(ToolFault, match="locked"):
            call(tools["unavailable"], word="x")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("untyped", "parameter word has no annotation"),
        ("unknown_type", "has no attribute 'Nothing'"),
        ("no_json_type", "Unable to generate"),
    ],
)
def test_function_whose_parameters_cannot_be_arguments_is_one_error(name: str, message: str) -> None:
    spec = {"type": "function", "function": f"tests.tools.functions:{name}"}
    with pytest.raises(UserError, match=f"tool tests.tools.functions:{name}: .*{message}.*; annotate"), opened(spec):
        pass


@pytest.mark.parametrize(
    ("value", "text", "figures"),
    [
        ("10 ** 400", "1" + "0" * 400, {}), ("float('nan')", "nan", {}), ("float('inf')", "inf", {}),
        ("'\\ud800 Ida'", "? Ida", {}), ("True", "True", {}), ("2.5", "2.5", {"value": 2.5}),
    ],
)  # fmt: skip
def test_result_of_a_function_can_be_recorded(value: str, text: str, figures: dict[str, float]) -> None:
    with opened({"type": "function", "function": "tests.tools.functions:evaluated"}) as tools:
        assert call(tools["evaluated"], copy=value) == ToolResult(text=text, figures=figures)
        assert call(tools["evaluated"], copy="1 / 0").text == "Error : ZeroDivisionError : division by zero"


class Endpoint(HttpServer):
    """Echoes what it got; the first ``faults`` requests fail."""

    faults = 0

    def answer(self, request: HttpRequest) -> HttpResponse:
        status = 503 if self.faults else 404 if "missing" in request.path else 200
        self.faults = max(0, self.faults - 1)
        return status, f"{request.path} {request.body.decode()}"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        yield server


def http(url: str, **more: Any) -> dict[str, Any]:
    arguments = {"city": {}, "days": {"type": "integer", "required": False}}
    return {"type": "http", "name": "weather", "description": "d", "url": url, "arguments": arguments, **more}


def test_http_sends_arguments_and_token_and_cuts_the_response(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER", "secret")
    with opened(http(f"{endpoint.url}/now", token_env="WEATHER", max_characters=14)) as tools:
        assert call(tools["weather"], city="Oslo", days=2).text == "/now?city=Oslo&days=2"[:14]
    with opened(http(f"{endpoint.url}/now", method="POST")) as tools:
        assert call(tools["weather"], city="Oslo").text == '/now {"city":"Oslo"}'
    assert [request.headers["Authorization"] for request in endpoint.received] == ["Bearer secret", None]
    with pytest.raises(UserError, match="MISSING has no token"), opened(http(endpoint.url, token_env="MISSING")):
        pass


def test_http_refusal_is_the_agents_error_and_an_outage_is_a_fault(endpoint: Endpoint) -> None:
    with opened(http(f"{endpoint.url}/missing", retries=1)) as tools:
        result = call(tools["weather"], city="x")
        assert result.error
        assert result.text.startswith("Error : HTTP 404")
    endpoint.faults = 1
    with opened(http(f"{endpoint.url}/now", retries=1)) as tools:
        assert call(tools["weather"], city="x").text.startswith("/now")
        endpoint.faults = 9
        with pytest.raises(ToolFault, match="tool weather: http.* is unavailable: HTTP 503"):
            call(tools["weather"], city="x")
    with opened(http("http://127.0.0.1:9/now", retries=0)) as tools, pytest.raises(ToolFault, match="refused"):
        call(tools["weather"], city="x")


def test_http_argument_that_is_too_long_for_a_url_is_the_agents_error(endpoint: Endpoint) -> None:
    with opened(http(f"{endpoint.url}/now")) as tools:
        result = call(tools["weather"], city="x" * 70_000)
    assert (result.error, result.text) == (True, "Error : URL component 'query' too long")


def test_http_keeps_the_query_of_its_url(endpoint: Endpoint) -> None:
    with opened(http(f"{endpoint.url}/now?key=1&city=Rome")) as tools:
        assert call(tools["weather"], city="Oslo").text.strip() == "/now?key=1&city=Oslo"


def test_http_damaged_response_is_a_fault() -> None:
    with (
        HttpServer(lambda _: (200, "plain", {"Content-Encoding": "gzip"})) as server,
        opened(http(server.url, retries=1)) as tools,
        pytest.raises(ToolFault, match="tool weather: http.* is unavailable: .*incorrect header"),
    ):
        call(tools["weather"], city="Oslo")
    assert len(server.received) == 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["model_dump", "model_config", "schema", "copy", "json", "class", "argument_0"])
def test_http_argument_may_have_a_name_that_pydantic_reserves(endpoint: Endpoint, name: str) -> None:
    with opened(http(endpoint.url, arguments={"a": {"required": False}, name: {}})) as tools:
        tool = tools["weather"]
        assert plain_argument(tool.arguments) == name
        assert list(tool.arguments.model_json_schema()["properties"]) == ["a", name]
        assert call(tool, **{name: "x"}).text.strip() == f"/?{name}=x"


@pytest.mark.parametrize(("url", "proxy"), [("http://\u00e4..b/x", ""), ("http://h/x", "odd://p")])
def test_http_tool_that_cannot_be_opened_is_one_error(url: str, proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(UserError, match=f"^tool weather: {url}: .*; correct the URL, or HTTP_PROXY"), opened(http(url)):
        pass


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(port)


SERVER = str(Path(__file__).with_name("mcp_server.py"))
LOW_LEVEL = str(Path(__file__).with_name("low_level_mcp_server.py"))


def test_mcp_program_offers_its_tools() -> None:
    with opened({"type": "mcp", "command": [sys.executable, SERVER]}) as tools:
        assert list(tools) == ["release_year", "films"]
        year = tools["release_year"]
        assert year.description == "Give the year in which a film was released."
        assert plain_argument(year.arguments) == "film"
        assert call(year, film="Amberfall") == ToolResult(text="1923")
        assert call(year, film="Amberfall", offset=1).text == "1924"
        failed = call(year, film="none")
        assert failed.error
        assert failed.text == "Error : Error executing tool release_year"
        assert call(tools["films"]).text == "Amberfall, Night Lake"
    with opened({"type": "mcp", "command": [sys.executable, SERVER], "tools": ["films"]}) as tools:
        assert list(tools) == ["films"]


def test_mcp_arguments_may_have_any_names_and_their_rejection_is_the_agents_error() -> None:
    with opened({"type": "mcp", "command": [sys.executable, LOW_LEVEL]}) as tools:
        text = "[('_x', 1), ('model_dump', [2]), ('schema', 's'), ('year', 3)]"
        assert call(tools["odd"], schema="s", year=3, model_dump=[2], _x=1) == ToolResult(text=text)
        assert call(tools["odd"], schema="bad", year=3) == ToolResult(text="Error : schema must be good", error=True)


def test_mcp_argument_that_is_null_is_sent_if_it_is_required() -> None:
    with opened({"type": "mcp", "command": [sys.executable, LOW_LEVEL]}) as tools:
        assert call(tools["odd"], schema="s", year=None, _x=None).text == "[('schema', 's'), ('year', None)]"


def test_mcp_server_is_reached_over_http_and_its_loss_is_a_fault() -> None:
    port = free_port()
    server = subprocess.Popen([sys.executable, SERVER, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        with opened({"type": "mcp", "url": f"http://127.0.0.1:{port}/mcp", "timeout": 5}) as tools:
            assert call(tools["release_year"], film="Night Lake").text == "1957"
            server.kill()
            server.wait()
            with pytest.raises(ToolFault, match="tool release_year: the MCP server failed"):
                call(tools["release_year"], film="Night Lake")
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "mcp", "command": ["/no/such/program"]}, "MCP server /no/such/program: cannot be opened"),
        ({"type": "mcp", "url": "http://127.0.0.1:9/mcp"}, "MCP server http://127.0.0.1:9/mcp: cannot be opened"),
        (
            {"type": "mcp", "command": [sys.executable, SERVER], "tools": ["actors"]},
            "has no tool actors; it has release",
        ),
        (
            {"type": "mcp", "command": [sys.executable, LOW_LEVEL, "broken"]},
            "lists no tools: MCPError: no database; check the server",
        ),
        ({"type": "mcp", "url": "http://h/mcp", "token_env": "MISSING"}, "MISSING has no token; set it"),
        (
            {"type": "custom", "tool": "tests.extensions.glossary:Glossary", "settings": {"path": "/no/file"}},
            "tool tests.extensions.glossary:Glossary: FileNotFoundError: ",
        ),
        ({"type": "custom", "tool": "tests.extensions.glossary:Glossary"}, "missing 1 required positional argument"),
        ({"type": "custom", "tool": "tests.tools.functions:whole", "settings": {"word": "x"}}, "has no name; see"),
        ({"type": "custom", "tool": "tests.tools.functions:Search"}, "the name search is reserved for the search of"),
    ],
)
def test_tool_that_cannot_be_opened_is_one_error(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught, opened(spec):
        pass
    assert message in str(caught.value)


def test_custom_tool_is_opened_with_its_settings(tmp_path: Path) -> None:
    (tmp_path / "terms.json").write_text(json.dumps({"reel": "a spool"}))
    settings = {"path": str(tmp_path / "terms.json")}
    with opened({"type": "custom", "tool": "tests.extensions.glossary:Glossary", "settings": settings}) as tools:
        assert call(tools["glossary"], terms=["reel"]).evidence[0].text == "a spool"


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([{"type": "search"}, {"type": "search", "top_k": 5}], "two tools are named search"),
        ([{"type": "http", "name": "think", "description": "d", "url": "http://h"}], "must not be named think"),
        ([{"type": "http", "name": "search", "description": "d", "url": "http://h"}], "the name search is reserved"),
        ([{"type": "function", "function": "tests.tools.functions:whole", "name": "search"}], "the name search is"),
        ([{"type": "http", "name": "a b", "description": "d", "url": "http://h"}], "String should match pattern"),
        ([{"type": "http", "name": "a", "description": "d", "url": "http://u:p@h"}], "must not hold user:password@"),
        ([{"type": "http", "name": "a", "description": "d", "url": "http://h:abc/x"}], "no valid host and port"),
        ([{"type": "http", "name": "a", "description": "d", "url": "http:///x"}], "no valid host and port"),
        ([{"type": "mcp", "url": "http://[::1/x"}], "no valid host and port"),
        ([{"type": "mcp", "command": ["x"], "token_env": "TOKEN"}], "token_env is for a url"),
        ([{"type": "mcp"}], "has either a command or a url"),
        ([{"type": "mcp", "command": ["x"], "url": "http://h"}], "has either a command or a url"),
        ([{"type": "function", "function": "tests.tools.functions:absent"}], "defines no function"),
        ([{"type": "function", "function": "os:remove"}], "os is part of Python"),
        ([{"type": "custom", "tool": "tests.tools.functions"}], "names no class"),
        ([{"type": "oracle"}], "does not match any of the expected tags"),
        ([], "at least 1 item"),
    ],
)
def test_settings_of_tools_are_refused_before_a_run(tools: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AgentSpec.model_validate({"tools": tools})
    assert message in str(caught.value)
