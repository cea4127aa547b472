"""Error responses: routes and the framework use the same body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from platform_sdk.retrieval.wire import Fault, Refusal

RETRY_SECONDS = 2
MAX_ERRORS = 20  # reported for one body

MEANINGS = {
    400: "The request names no collection although the team has several, or has two lengths.",
    401: "Missing or unknown token.",
    404: "The team has no such collection.",
    408: "The body did not arrive in time.",
    409: "The service searches a different corpus than the request names.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "The request does not match this schema.",
    429: "Too many queries wait.",
    500: "A fault of the service.",
    503: "Not ready, shutting down, or a dependency is unavailable.",
    504: "No answer within the deadline.",
}
WITH_RETRY = {429, 503}


class RequestError(Exception):
    """Error response; ``code`` is for programs."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})


def later(status: int, code: str, message: str, seconds: int = RETRY_SECONDS) -> RequestError:
    """Return an error with Retry-After."""
    return RequestError(status, code, message, {"Retry-After": str(seconds)})


def unauthorised() -> RequestError:
    """Return the error for a missing or unknown token."""
    return RequestError(401, "unauthorized", "a team's bearer token is needed", {"WWW-Authenticate": "Bearer"})


def invalid(error: ValidationError) -> RequestError:
    """Return the error for an invalid body, with each location."""
    if error.error_count() > MAX_ERRORS:
        return RequestError(
            422, "invalid_request", f"the body has {error.error_count()} errors; compare it with /openapi.json"
        )
    return RequestError(422, "invalid_request", _joined(error.errors(include_url=False, include_input=False)))


def unforeseen(error: Exception) -> RequestError:
    """Return the refusal of an unexpected error, whose text is for the service's log only: it may name paths."""
    return RequestError(500, "internal", f"{type(error).__name__}; see the service's log")


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a route's errors."""
    retry = {"Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "integer"}}}
    return {
        status: {"model": Refusal, "description": MEANINGS[status]}
        | ({"headers": retry} if status in WITH_RETRY else {})
        for status in sorted(statuses)
    }


def handle_refusals(app: FastAPI) -> None:
    """Register handlers for refusals, FastAPI's errors and unexpected exceptions."""

    def answer(request: Request, refused: RequestError) -> JSONResponse:
        request.state.refusal = refused.code
        refusal = Refusal(error=Fault(code=refused.code, message=refused.message))
        return JSONResponse(refusal.model_dump(), refused.status, refused.headers)

    @app.exception_handler(RequestError)
    async def own(request: Request, error: RequestError) -> JSONResponse:
        return answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def parameters(request: Request, error: RequestValidationError) -> JSONResponse:
        return answer(request, RequestError(422, "invalid_request", _joined(error.errors())))

    @app.exception_handler(HTTPException)
    async def routing(request: Request, error: HTTPException) -> JSONResponse:
        code = {404: "no_such_route", 405: "no_such_method"}.get(error.status_code, "refused")
        return answer(request, RequestError(error.status_code, code, str(error.detail), error.headers))

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> JSONResponse:
        return answer(request, unforeseen(error))


class OneLength:
    """Reject requests with both Content-Length and Transfer-Encoding.

    A proxy may trust the other header and treat the rest of a body as the next request (request smuggling).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope["headers"]} if scope["type"] == "http" else set()
        if not {b"content-length", b"transfer-encoding"} <= names:
            await self._app(scope, receive, send)
            return
        message = "send either Content-Length or Transfer-Encoding, not both"
        refusal = Refusal(error=Fault(code="two_lengths", message=message))
        scope.setdefault("state", {})["refusal"] = "two_lengths"
        await JSONResponse(refusal.model_dump(), 400, {"Connection": "close"})(scope, receive, send)


def _joined(errors: Any) -> str:
    """Return each error with its location, at most 2,000 characters."""
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in errors)[:2000]
