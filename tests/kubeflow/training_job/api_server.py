"""A small stateful API server that speaks the real protocol over a socket, and a clock whose time a test lets pass.

It keeps custom objects, pods, logs and events; answers create, get, list with label selectors, merge patch and delete
as the real one does (409 AlreadyExists; 404 with a Status, or in plain text where it does not know the kind; labels
that may not be; versions, and deletions that want one; finalizers that hold what is deleted); and fails on demand.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Item = dict[str, Any]

GROUPS = {"kubeflow.org": "pytorchjobs", "trainer.kubeflow.org": "trainjobs", "batch": "jobs"}  # what discovery shows
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class VirtualClock:
    """Time that passes only when somebody sleeps; ``at`` plans what the cluster does meanwhile."""

    def __init__(self) -> None:
        self._now = 1_800_000_000.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []

    def time(self) -> float:
        return self._now

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Let ``action`` happen ``seconds`` after the clock was made."""
        self._planned.append((1_800_000_000.0 + seconds, len(self._planned), action))
        self._planned.sort(key=lambda entry: entry[:2])

    def sleep(self, seconds: float) -> None:
        until = self._now + seconds
        while self._planned and self._planned[0][0] <= until:
            self._now, _, action = self._planned.pop(0)
            action()
        self._now = until


class ApiServer:
    """Use as a context manager; ``url`` is where it listens."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Item] = {}  # (plural, name)
        self.unknown: set[str] = set()  # plurals
        self.pods: dict[str, Item] = {}
        self.config_maps: dict[str, dict[str, str]] = {}
        self.logs: dict[str, str] = {}
        self.events: list[Item] = []
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], tuple[int, str] | None] = lambda method, path: None
        self._uid = self._version = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = 1 << 16  # head and body go out together

            def _handle(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                split = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(split.query).items()}
                status, answer = server.answer(self.command, split.path, query, body)
                data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = _handle

            def log_message(self, *arguments: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ApiServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def job(self, plural: str = "pytorchjobs") -> Item:
        """The only job there is."""
        [found] = [item for (kind, _), item in self.objects.items() if kind == plural]
        return found

    def changed(self, item: Item) -> None:
        """Give an object a new version, as every write does."""
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)

    def release(self, plural: str, name: str) -> None:
        """Take the finalizers from an object, as their controllers would; one that was deleted goes."""
        item = self.objects[plural, name]
        item["metadata"].pop("finalizers", None)
        if "deletionTimestamp" in item["metadata"]:
            self._remove(plural, name)

    def condition(self, item: Item, type_: str, status: str = "True", reason: str = "", message: str = "") -> None:
        """Set a condition of an object, as its controller would."""
        conditions = item.setdefault("status", {}).setdefault("conditions", [])
        conditions[:] = [one for one in conditions if one["type"] != type_]
        conditions.append({"type": type_, "status": status, "reason": reason, "message": message})
        self.changed(item)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        self.requests.append((method, path))
        fault = self.fault(method, path)
        if fault is not None:
            return _status(*fault)
        parts = path.strip("/").split("/")
        for value in _wanted(query).values():
            if not LABEL.fullmatch(value):
                return _status(400, "BadRequest", f'unable to parse requirement: values[0]: Invalid value: "{value}"')
        if parts[0] == "apis" and len(parts) == 3:
            there = {GROUPS[parts[1]]} - self.unknown
            return (200, {"resources": [{"name": name} for name in there]}) if there else (404, "404 page not found\n")
        if parts[0] == "apis":
            if parts[5] in self.unknown:
                return 404, "404 page not found\n"
            return self._custom(method, parts[5], parts[6] if len(parts) > 6 else None, query, body)
        if parts[4] == "configmaps":
            data = self.config_maps.get(f"{parts[3]}/{parts[5]}")
            return (200, {"data": data}) if data is not None else _status(404, "NotFound", f'"{parts[5]}" not found')
        if parts[4] == "events":
            wanted = dict(one.split("=") for one in query["fieldSelector"].split(","))
            found = [e for e in self.events if e["involvedObject"]["name"] == wanted["involvedObject.name"]]
            return 200, {"items": found}
        if len(parts) > 6:
            text = self.logs.get(parts[5])
            if text is None:
                return _status(400, "BadRequest", f'container in pod "{parts[5]}" is waiting to start')
            return 200, "".join(text.splitlines(keepends=True)[-int(query["tailLines"]) :])
        if len(parts) > 5:
            pod = self.pods.get(parts[5])
            return (200, pod) if pod else _status(404, "NotFound", f'pods "{parts[5]}" not found')
        return 200, {"items": _selected(self.pods.values(), query)}

    def _custom(self, method: str, plural: str, name: str | None, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if method == "POST":
            key = (plural, body["metadata"]["name"])
            if query.get("fieldValidation") != "Strict":
                return _status(422, "Invalid", "the test wants strict validation")
            for label, value in body["metadata"].get("labels", {}).items():
                if not LABEL.fullmatch(value):
                    return _status(422, "Invalid", f'metadata.labels: Invalid value: "{value}": of {label}')
            if key in self.objects:
                return _status(409, "AlreadyExists", f'{plural} "{key[1]}" already exists')
            self._uid += 1
            metadata = body["metadata"] | {"uid": f"uid-{self._uid}", "creationTimestamp": "2027-01-15T08:00:00Z"}
            self.objects[key] = body | {"metadata": metadata}
            self.changed(self.objects[key])
            return 201, self.objects[key]
        if name is None:
            found = [item for (kind, _), item in self.objects.items() if kind == plural]
            return 200, {"items": _selected(found, query)}
        item = self.objects.get((plural, name))
        if item is None:
            return _status(404, "NotFound", f'{plural} "{name}" not found')
        if method == "PATCH":
            item["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
            self.changed(item)
        elif method == "DELETE":
            return self._delete(plural, name, item, body or query)
        return 200, item

    def _delete(self, plural: str, name: str, item: Item, options: Item) -> tuple[int, Any]:
        """Delete an object; the query counts only where there is no body."""
        if options.get("propagationPolicy") != "Foreground":
            return _status(422, "Invalid", "the test wants pods to go before their job")
        wanted, version = options.get("preconditions", {}).get("resourceVersion"), item["metadata"]["resourceVersion"]
        if wanted not in (None, version):
            return _status(409, "Conflict", f"the precondition ({wanted}) does not match the record ({version})")
        if item["metadata"].get("finalizers"):
            item["metadata"].setdefault("deletionTimestamp", "2027-01-15T08:00:00Z")
            self.changed(item)
        else:
            self._remove(plural, name)
        return 200, item

    def _remove(self, plural: str, name: str) -> None:
        del self.objects[plural, name]
        self.pods = {k: pod for k, pod in self.pods.items() if name not in pod["metadata"]["labels"].values()}


def _wanted(query: dict[str, str]) -> dict[str, str]:
    return dict(one.split("=") for one in query.get("labelSelector", "").split(",") if one)


def _selected(items: Any, query: dict[str, str]) -> list[Item]:
    wanted = _wanted(query)
    return [item for item in items if wanted.items() <= item["metadata"].get("labels", {}).items()]


def _status(code: int, reason: str, message: str = "") -> tuple[int, Item]:
    return code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
