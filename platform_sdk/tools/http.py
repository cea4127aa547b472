"""An HTTP endpoint as a tool."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import BaseModel

from platform_sdk.config.tools import HttpToolSpec
from platform_sdk.endpoints import opening, secret
from platform_sdk.errors import UserError
from platform_sdk.records import ToolCall, ToolResult
from platform_sdk.tools.base import ToolFault, arguments_model

_TYPES: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}


@dataclass(frozen=True)
class HttpTool:
    """Tool that sends each call to an endpoint.

    After a lost connection, an unreadable response, 429 or 5xx the call is repeated, then a ``ToolFault``. Any other
    status from 300 on is an error that the agent sees.
    """

    spec: HttpToolSpec
    arguments: type[BaseModel]
    client: httpx.Client

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def description(self) -> str:
        return self.spec.description

    def call(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Send the calls, ``concurrency`` at a time."""
        with ThreadPoolExecutor(self.spec.concurrency, "http-tool") as pool:
            return list(pool.map(self._result, calls))

    def _result(self, call: ToolCall) -> ToolResult:
        arguments: dict[str, Any] = {name: value for name, value in call.arguments.items() if value is not None}
        url, content = httpx.URL(self.spec.url), dict[str, Any]()
        if self.spec.method == "GET":
            try:
                url = url.copy_merge_params(arguments)
            except httpx.InvalidURL as error:  # longer than 65536 characters
                return ToolResult(text=f"Error : {error}", error=True)
        else:
            content = {"json": arguments}
        last = ""
        for attempt in range(1 + self.spec.retries):
            if attempt:
                time.sleep(min(2.0 ** (attempt - 2), 10.0))
            try:
                response = self.client.request(self.spec.method, url, **content)
            except httpx.RequestError as error:
                last = str(error) or type(error).__name__
                continue
            if response.status_code != 429 and response.status_code < 500:
                return _read(response, self.spec.max_characters)
            last = f"HTTP {response.status_code}"
        raise ToolFault(f"tool {self.name}: {self.spec.url} is unavailable: {last}")


def _read(response: httpx.Response, limit: int) -> ToolResult:
    text = response.text[:limit]
    if response.status_code >= 300:
        return ToolResult(text=f"Error : HTTP {response.status_code} {text}".strip(), error=True)
    return ToolResult(text=text)


def open_http(spec: HttpToolSpec) -> HttpTool:
    """Return the tool, with its arguments' model.

    Raises:
        UserError: the variable with its token is not set, or the URL or the environment's proxy is not valid.
    """
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    arguments = arguments_model(
        spec.name,
        (
            (name, _TYPES[each.type], ..., each.description)
            if each.required
            else (name, _TYPES[each.type] | None, None, each.description)
            for name, each in spec.arguments.items()
        ),
    )
    headers = bearer(spec.token_env, spec.name)
    with opening(f"tool {spec.name}: {spec.url}"):
        httpx.URL(spec.url)
        client = httpx.Client(timeout=spec.timeout, headers=headers, follow_redirects=False)
    return HttpTool(spec, arguments, client)


def bearer(token_env: str | None, name: str) -> dict[str, str]:
    """Return the header with the token of a tool, if it has one.

    Raises:
        UserError: the variable is not set, or its value cannot be a header.
    """
    if token_env is None:
        return {}
    token = secret(token_env, f"tool {name}")
    if not token:
        raise UserError(f"tool {name}: the environment variable {token_env} has no token; set it")
    return {"Authorization": f"Bearer {token}"}
