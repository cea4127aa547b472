"""HTTP server of the gateway: sessions' endpoints of the OpenAI protocol and searches."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from platform_sdk.gateway import responses
from platform_sdk.gateway.bodies import read_body
from platform_sdk.gateway.connections import CONNECTIONS, most_connections, protocol
from platform_sdk.gateway.events import Bounds
from platform_sdk.gateway.mcp_endpoint import McpEndpoint, search_arguments
from platform_sdk.gateway.protocol import (
    CHAT_FIELDS,
    TEXT_FIELDS,
    ChatRequest,
    TextRequest,
    check_parameters,
    overridden,
    turn_of,
)
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.replies import CREATED, MODEL, chat_chunks, chat_completion, text_chunks, text_completion
from platform_sdk.gateway.sessions import CLOSED, Session
from platform_sdk.gateway.templates import ChatTemplate
from platform_sdk.records import Evidence
from platform_sdk.sampling.engine import SamplingParams

Endpoint = Callable[[Session, Any], Awaitable[Response]]
_ENDPOINTS = "POST /v1/chat/completions, /v1/completions, /v1/responses, /search or /mcp, or GET /v1/models"
_START_SECONDS = 30
_HOST = "127.0.0.1"


class Gateway:
    """Server of all sessions, in a thread; a context manager.

    Args:
        tokenizer: the policy's tokenizer with its chat template.
        max_model_len: maximum number of tokens of prompt and completion together.
        defaults: the recipe's sampling parameters; ``stop`` and ``seed`` come from each call.
        connections: maximum number of connections of all sessions together; see ``Connections``.
    """

    def __init__(
        self, tokenizer: Any, max_model_len: int, defaults: SamplingParams, *, connections: int = CONNECTIONS
    ) -> None:
        self.template = ChatTemplate(tokenizer)
        self.max_model_len, self.defaults = max_model_len, defaults
        self._sessions: dict[str, Session] = {}
        self._socket = socket.create_server((_HOST, 0), backlog=256)
        # asyncio leaves it out for such sockets; without it, a reply waits 40 ms for the acknowledgement of its head.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.url = f"http://{_HOST}:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.application(), log_level="error", access_log=False, ws="none", lifespan="on",
                limit_concurrency=most_connections(connections), http=protocol(), timeout_graceful_shutdown=1,
            )
        )  # fmt: skip
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="gateway", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        for _ in range(_START_SECONDS * 100):
            if self._server.started:
                return self
            if not self._thread.is_alive():
                break
            self._thread.join(0.01)
        raise RuntimeError(f"the gateway did not start at {self.url}; the log has the reason")

    @property
    def thread_id(self) -> int:
        """Identifier of the server's thread, e.g. for its CPU time."""
        assert self._thread.ident is not None, "the gateway is not open"
        return self._thread.ident

    def __exit__(self, *_: object) -> None:
        for session in list(self._sessions.values()):
            session.close()
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def open(
        self, *, seed: int, name: str, role: str = "agent", bounds: Bounds | None = None,
        given: tuple[Evidence, ...] = (),
    ) -> Session:  # fmt: skip
        """Open a session.

        Args:
            seed: the seeds of its calls follow from it.
            name: name in traces and errors.
            given: passages that the program has from the start.
        """
        token = secrets.token_urlsafe(24)
        session = Session(
            self.template, self.url, token, seed=seed, name=name, role=role, bounds=bounds or Bounds(),
            defaults=self.defaults, max_model_len=self.max_model_len, closing=self._forget, given=given,
        )  # fmt: skip
        self._sessions[token] = session
        return session

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session.token, None)

    def application(self) -> Starlette:
        """Return the ASGI application."""
        mcp = McpEndpoint(self.session)

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with mcp.manager.run():
                yield

        routes = [
            Route("/s/{token}/v1/models", self._endpoint(_models), methods=["GET"]),
            Route("/s/{token}/v1/models/{model:path}", self._endpoint(_model), methods=["GET"]),
            Route("/s/{token}/v1/chat/completions", self._endpoint(_chat), methods=["POST"]),
            Route("/s/{token}/v1/completions", self._endpoint(_text), methods=["POST"]),
            Route("/s/{token}/v1/responses", self._endpoint(_responses), methods=["POST"]),
            Route("/s/{token}/mcp", mcp, methods=["POST"]),
            Route("/s/{token}/search", self._endpoint(_search), methods=["POST"]),
        ]
        return Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: _no_endpoint, 405: _no_endpoint})

    def _endpoint(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                session = self.session(request.path_params["token"])
                session.enter()
                try:
                    body = await _body(request, session.bounds.request_bytes) if request.method == "POST" else None
                    return await endpoint(session, body)
                finally:
                    session.leave()
            except Refusal as refusal:
                return JSONResponse(refusal.body(), refusal.status)
            except RecursionError:
                return JSONResponse(Refusal(400, "the request has values that are nested too deeply").body(), 400)
            except ClientDisconnect:
                return Response(status_code=400)

        return handle

    def session(self, token: str) -> Session:
        """Return the session of a token.

        Raises:
            Refusal: 401 if the token is unknown or its session has ended.
        """
        session = self._sessions.get(token)
        if session is None:
            raise Refusal(401, CLOSED, code="invalid_api_key")
        return session


async def _body(request: Request, limit: int) -> dict[str, Any]:
    """Return the request's JSON object; reads at most ``limit`` bytes."""
    content = await read_body(request, limit)
    try:
        body = json.loads(content)
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Refusal(400, "the request has half of a character (a lone surrogate); cut texts elsewhere") from error
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the request is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refusal(400, "the request must be a JSON object")
    return body


async def _no_endpoint(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = re.sub("^/s/[^/]*", "", request.url.path)
    reason = f"{request.method} {path:.200} is not an endpoint of the gateway; use {_ENDPOINTS}"
    return JSONResponse(Refusal(error.status_code, reason).body(), error.status_code, error.headers)


async def _models(session: Session, _: Any) -> Response:
    return JSONResponse({"object": "list", "data": [_card()]})


async def _model(session: Session, _: Any) -> Response:
    return JSONResponse(_card())


def _card() -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "hopforge"}


async def _chat(session: Session, body: dict[str, Any]) -> Response:
    check_parameters(body, CHAT_FIELDS)
    request = ChatRequest(body)
    _check_tools(session, request.tools)
    call, future = session.ask(request.messages, request.tools, request.stop, parse=request.parse, turn=turn_of(body))
    _note_overridden(session, body)
    reply = await asyncio.wrap_future(future)
    whole = chat_completion(call, reply, session.template.tokenizer, logprobs=request.logprobs)
    if not request.stream:
        return JSONResponse(whole)
    return StreamingResponse(chat_chunks(whole, with_usage=request.with_usage), media_type="text/event-stream")


async def _text(session: Session, body: dict[str, Any]) -> Response:
    check_parameters(body, TEXT_FIELDS)
    request = TextRequest(body, len(session.template.tokenizer))
    call, future = session.ask_text(request.prompt, request.stop, turn=turn_of(body))
    _note_overridden(session, body)
    whole = text_completion(call, await asyncio.wrap_future(future))
    if not request.stream:
        return JSONResponse(whole)
    return StreamingResponse(text_chunks(whole, with_usage=request.with_usage), media_type="text/event-stream")


async def _responses(session: Session, body: dict[str, Any]) -> Response:
    check_parameters(body, responses.FIELDS)
    request = responses.ResponsesRequest(body)
    _check_tools(session, request.tools)
    call, future = session.ask(request.messages, request.tools, (), parse=request.parse, turn=turn_of(body))
    _note_overridden(session, body)
    whole = responses.response(call, await asyncio.wrap_future(future), body)
    if not request.stream:
        return JSONResponse(whole)
    return StreamingResponse(responses.events(whole), media_type="text/event-stream")


def _note_overridden(session: Session, body: dict[str, Any]) -> None:
    """Record the parameters of an accepted call that the recipe overrides."""
    for note in overridden(body, session.defaults):
        session.note(note)


def _check_tools(session: Session, tools: tuple[dict[str, Any], ...]) -> None:
    if tools and session.template.format is None:
        reason = "the policy's chat template has no form for tools; leave tools out and describe them in the prompt"
        raise Refusal(400, reason, "tools", "unsupported_parameter")


async def _search(session: Session, body: dict[str, Any]) -> Response:
    evidence = await asyncio.wrap_future(session.search(*search_arguments(body)))
    return JSONResponse({"results": [item.model_dump(mode="json") for item in evidence]})
