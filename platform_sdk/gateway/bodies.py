"""Bodies of requests, bounded in size and in time."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from platform_sdk.gateway.refusals import Refusal

BODY_SECONDS = 60.0
"""Time to send the body of a request; a half-sent one would keep its connection for ever."""


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body of a request; reads at most ``limit`` bytes.

    Raises:
        Refusal: the body is larger, or does not arrive in time.
        ClientDisconnect: the client has gone.
    """
    declared = request.headers.get("content-length", "")
    size, parts = int(declared) if declared.isdecimal() else 0, []
    if size <= limit:
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    size += len(part)
                    if size > limit:
                        break
                    parts.append(part)
        except TimeoutError:
            raise Refusal(408, f"the request's body did not arrive within {BODY_SECONDS:g} seconds") from None
    if size > limit:
        raise Refusal(413, f"the request exceeds {limit} bytes; send less", code="request_too_large")
    return b"".join(parts)
