"""Refusals of the gateway, in the form of the OpenAI protocol."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """Request that is not answered: HTTP status, reason, and the parameter and code if there are any."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        """Return the body of the response."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}
