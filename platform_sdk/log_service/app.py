"""Routes of the log service: it only appends, and answers after the entry is on the disk."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from platform_sdk.config.errors import UserError
from platform_sdk.log_service.rate import Rate
from platform_sdk.retrieval.service.tokens import Tokens, UnreadableTokens
from platform_sdk.tracking.log.chain import MAX_LINE, TEAM_HEADER, Log, NotOwnerError, Statement
from platform_sdk.tracking.log.checkpoint import checkpoint_of
from platform_sdk.tracking.log.keys import SigningKey

BODY_SECONDS = 10.0
MAX_COUNT = 1000
MAX_BYTES = 1 << 30

logger = logging.getLogger(__name__)


class RequestError(Exception):
    """Error response; ``code`` is for programs."""

    def __init__(self, status: int, code: str, message: str, retry: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry = status, code, message, retry

    def response(self) -> Response:
        headers = {"Retry-After": str(max(1, round(self.retry)))} if self.retry else {}
        return JSONResponse({"error": {"code": self.code, "message": self.message}}, self.status, headers)


def create_app(
    log: Log, tokens: Tokens, key: SigningKey, rate: Rate, grown: Callable[[], None] = lambda: None
) -> Starlette:
    """Build the service.

    Args:
        grown: Called after each appended entry.

    Raises:
        UserError: the log is broken.
    """
    if faults := log.read().faults:
        raise UserError(f"{log.path}: {faults[0]}; restore it from a copy")

    async def post(request: Request) -> Response:
        team = _team(request, tokens)
        if wait := rate.wait(team, time.monotonic()):
            raise RequestError(429, "too_many_entries", f"team {team} sends too many entries; retry later", wait)
        try:
            statement = Statement.model_validate_json(await _body(request))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"])) or "body"
            raise RequestError(422, "invalid_entry", f"{field}: {first['msg']}") from error
        if log.path.is_file() and log.path.stat().st_size > MAX_BYTES:
            raise RequestError(507, "log_full", f"the log exceeds {MAX_BYTES} bytes")
        entry = await asyncio.to_thread(log.append, statement, team)
        grown()
        return Response(entry.line(), media_type="application/json")

    async def entries(request: Request) -> Response:
        team = _team(request, tokens)
        start, count = _number(request, "start", 0), min(_number(request, "count", MAX_COUNT), MAX_COUNT)
        chosen = log.chain.entries[start : start + count]
        content = b"".join(entry.line() + b"\n" for entry in chosen)
        return Response(content, media_type="application/jsonl", headers={TEAM_HEADER: team})

    async def checkpoint(request: Request) -> Response:
        _team(request, tokens)
        current = checkpoint_of(log.chain.entries, key)
        return Response(current.model_dump_json(), media_type="application/json")

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ready"})

    return Starlette(
        routes=[
            Route("/v1/entries", _answered(post), methods=["POST"]),
            Route("/v1/entries", _answered(entries), methods=["GET"]),
            Route("/v1/checkpoint", _answered(checkpoint), methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
        ]
    )


def _answered(route: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return the route with error responses."""

    async def answer(request: Request) -> Response:
        try:
            return await route(request)
        except RequestError as error:
            return error.response()
        except NotOwnerError as error:
            return RequestError(403, "other_team", str(error)).response()
        except ClientDisconnect:
            return Response(status_code=400)
        except (UserError, OSError) as error:
            logger.error("%s %s failed: %s", request.method, request.url.path, error)
            code, verb = ("log_unwritable", "write") if request.method == "POST" else ("log_unreadable", "read")
            message = f"the service cannot {verb} its log; its operator finds the reason in the service's output"
            return RequestError(503, code, message, 30).response()

    return answer


def _team(request: Request, tokens: Tokens) -> str:
    """Return the team of a request's token; a request is authenticated before its body is read."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    try:
        team = tokens.team(token.strip()) if scheme.lower() == "bearer" else None
    except UnreadableTokens as error:
        raise RequestError(503, "tokens_unreadable", "the service cannot read its tokens", 5) from error
    if team is None:
        raise RequestError(401, "unauthorized", "a team's bearer token is needed")
    return team


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RequestError(422, "invalid_number", f"{name}: must be a number from 0 on")
    return int(text)


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_LINE:
                    raise RequestError(413, "body_too_large", f"an entry may have {MAX_LINE} bytes")
    except TimeoutError as error:
        raise RequestError(408, "slow_body", f"the body did not arrive within {BODY_SECONDS:g} s") from error
    return bytes(body)
