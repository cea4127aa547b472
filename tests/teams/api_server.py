"""An API server that answers reads of given objects, for what ``hopforge teams`` asks of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.http_server import HttpRequest, HttpServer

Item = dict[str, Any]
Fault = Callable[[str], tuple[int, Any] | None]


class Server(HttpServer):
    """Objects by path; a path with ``items`` is a collection, of which a label selector selects.

    Args:
        objects: What is there.
    """

    def __init__(self, objects: dict[str, Item]) -> None:
        super().__init__()
        self.objects = objects
        self.fault: Fault = lambda path: None
        self.silent: str | None = None  # the connection of a request for this path is closed without an answer

    def answer(self, request: HttpRequest) -> tuple[int, Any] | None:
        split = urlsplit(request.path)
        path, selector = split.path, parse_qs(split.query).get("labelSelector", [""])[0]
        if path == self.silent:
            return None
        if (fault := self.fault(path)) is not None:
            return fault
        found = self.objects.get(path)
        if found is None:
            return 404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": f"{path} not found"}
        if selector and "items" in found:
            wanted = dict(pair.split("=") for pair in selector.split(","))
            items = [item for item in found["items"] if wanted.items() <= item["metadata"].get("labels", {}).items()]
            return 200, {**found, "items": items}
        return 200, found


def forbidden(path: str) -> tuple[int, Item]:
    message = f'resources at {path} are forbidden: User "bob@example.com" cannot get them'
    return 403, {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": message}
