"""A small stateful API server that speaks the real protocol over a socket.

It keeps custom objects, pods, logs and events; answers create, get, list and watch with selectors, merge patch and
delete as the real one does (409 AlreadyExists; 404 with a Status, or in plain text for an unknown kind; labels that are
not allowed; versions, and deletions with preconditions; finalizers that hold what is deleted; watches that end, are
lost, or start from a version that is too old; the admission of a TrainJob's patch); and fails on demand. Its messages
are those that real servers sent (``tests/kubeflow/recorded/cluster``).
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubeflow.training_job.watches import Watches

Item = dict[str, Any]

GROUPS = {"kubeflow.org": "pytorchjobs", "trainer.kubeflow.org": "trainjobs", "batch": "jobs"}  # what discovery shows
REVIEWS = "/apis/authorization.k8s.io/v1"
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
POD_OF_PATCH = "template.spec.replicatedJobs[0].template.spec.template.spec"


class ApiServer:
    """Use as a context manager; ``url`` is where it listens."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Item] = {}  # (plural, name)
        self.paths: dict[str, Item] = {}  # other objects, which are only read
        self.unknown: set[str] = set()  # plurals
        self.pods: dict[str, Item] = {}
        self.config_maps: dict[str, dict[str, str]] = {}
        self.logs: dict[str, str] = {}
        self.events: list[Item] = []
        self.denied: set[tuple[str, str]] = set()  # (verb, plural) of access reviews
        self.requests: list[tuple[str, str]] = []
        self.watches = Watches()
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
                watching = query.get("watch") == "True"
                status, answer = server.answer("WATCH" if watching else self.command, split.path, query, body)
                if watching and status == 200:
                    try:
                        server.watches.serve(self, partial(server.collection, split.path, query), query)
                    except OSError:  # the client went
                        self.close_connection = True
                    return
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
        self.watches.drop()
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

    def warn(self, name: str, reason: str, message: str) -> None:
        """Add a warning to the events of an object."""
        time = "2027-01-15T08:00:05Z"
        event = {"involvedObject": {"name": name}, "type": "Warning", "reason": reason, "message": message}
        self.events.append(event | {"lastTimestamp": time})

    def collection(self, path: str, query: dict[str, str]) -> list[Item]:
        """The selected objects of a path."""
        parts = path.strip("/").split("/")
        custom = parts[0] == "apis"
        items = [item for (kind, _), item in self.objects.items() if kind == parts[5]] if custom else self.pods.values()
        for item in items:
            item["metadata"].setdefault("uid", f"uid-of-{item['metadata']['name']}")
        fields = _wanted(query, "fieldSelector")
        labels = _wanted(query, "labelSelector").items()
        return [
            item
            for item in items
            if labels <= item["metadata"].get("labels", {}).items()
            and fields.get("metadata.name") in (None, item["metadata"]["name"])
        ]

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        self.requests.append((method, path))
        fault = self.fault(method, path)
        if fault is not None:
            return _status(*fault)
        if method == "GET" and path in self.paths:
            return 200, self.paths[path]
        if path == "/api/v1/nodes":
            return 200, {"items": []}
        if path.startswith("/apis/visibility."):
            return 404, "404 page not found\n"
        if path.startswith(REVIEWS):
            attributes = body["spec"]["resourceAttributes"]
            allowed = (attributes["verb"], attributes["resource"]) not in self.denied
            return 201, {**body, "status": {"allowed": allowed}}
        parts = path.strip("/").split("/")
        for value in _wanted(query, "labelSelector").values():
            if not LABEL.fullmatch(value):
                return _status(400, "BadRequest", f'unable to parse requirement: values[0]: Invalid value: "{value}"')
        if parts[0] == "apis" and len(parts) == 3:
            there = {GROUPS[parts[1]]} - self.unknown
            return (200, {"resources": [{"name": name} for name in there]}) if there else (404, "404 page not found\n")
        if parts[0] == "apis":
            if parts[5] in self.unknown:
                return 404, "404 page not found\n"
            return self._custom(method, path, parts[6] if len(parts) > 6 else None, query, body)
        if parts[4] == "configmaps":
            data = self.config_maps.get(f"{parts[3]}/{parts[5]}")
            return (200, {"data": data}) if data is not None else _status(404, "NotFound", f'"{parts[5]}" not found')
        if parts[4] == "events":
            name = _wanted(query, "fieldSelector")["involvedObject.name"]
            return 200, {"items": [event for event in self.events if event["involvedObject"]["name"] == name]}
        if len(parts) > 6:
            text = self.logs.get(f"{parts[5]}/previous" if query.get("previous") == "True" else parts[5])
            if text is None:
                return _status(400, "BadRequest", f'container in pod "{parts[5]}" is waiting to start')
            return 200, "".join(text.splitlines(keepends=True)[-int(query["tailLines"]) :])
        if len(parts) > 5:
            pod = self.pods.get(parts[5])
            return (200, pod) if pod else _status(404, "NotFound", f'pods "{parts[5]}" not found')
        return self._list(path, query)

    def _list(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        items = self.collection(path, query)
        self._version += 1
        self.watches.remember(str(self._version), items)
        return 200, {"items": items, "metadata": {"resourceVersion": str(self._version)}}

    def _custom(self, method: str, path: str, name: str | None, query: dict[str, str], body: Any) -> tuple[int, Any]:
        plural = path.strip("/").split("/")[5]
        if method == "POST":
            return self._create(plural, query, body)
        if name is None:
            return self._list(path, query)
        item = self.objects.get((plural, name))
        if item is None:
            return _status(404, "NotFound", f'{plural} "{name}" not found')
        if method == "PATCH":
            item["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
            self.changed(item)
        elif method == "DELETE":
            return self._delete(plural, name, item, body or query)
        return 200, item

    def _create(self, plural: str, query: dict[str, str], body: Item) -> tuple[int, Any]:
        key = (plural, body["metadata"]["name"])
        if query.get("fieldValidation") != "Strict":
            return _status(422, "Invalid", "the test wants strict validation")
        for label, value in body["metadata"].get("labels", {}).items():
            if not LABEL.fullmatch(value):
                return _status(422, "Invalid", f'metadata.labels: Invalid value: "{value}": of {label}')
        if key in self.objects:
            return _status(409, "AlreadyExists", f'{plural} "{key[1]}" already exists')
        if plural == "trainjobs" and (refused := _refused_patch(body)):
            return _status(422, "Invalid", refused)
        if query.get("dryRun") == "All":
            return 201, body
        self._uid += 1
        metadata = body["metadata"] | {"uid": f"uid-{self._uid}", "creationTimestamp": "2027-01-15T08:00:00Z"}
        self.objects[key] = body | {"metadata": metadata}
        self.changed(self.objects[key])
        return 201, self.objects[key]

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


def pods_of_patch(trainjob: Item) -> list[Item]:
    """The pod specifications in the patches of a TrainJob."""
    return [
        job["template"]["spec"]["template"]["spec"]
        for patch in trainjob["spec"].get("runtimePatches", ())
        for job in patch["trainingRuntimeSpec"]["template"]["spec"].get("replicatedJobs", ())
    ]


def _refused_patch(trainjob: Item) -> str:
    """Return the refusal of a patch that mounts a volume twice: the list's key is ``name``."""
    for container in (one for pod in pods_of_patch(trainjob) for one in pod.get("containers", ())):
        names = [mount["name"] for mount in container.get("volumeMounts", ())]
        for number, name in enumerate(names):
            if name in names[:number]:
                field = (
                    f"spec.runtimePatches[0].trainingRuntimeSpec.{POD_OF_PATCH}.containers[0].volumeMounts[{number}]"
                )
                job = f'TrainJob.trainer.kubeflow.org "{trainjob["metadata"]["name"]}"'
                return f'{job} is invalid: {field}: Duplicate value: {{"name":"{name}"}}'
    return ""


def _wanted(query: dict[str, str], selector: str) -> dict[str, str]:
    return dict(one.split("=") for one in query.get(selector, "").split(",") if one)


def _status(code: int, reason: str, message: str = "") -> tuple[int, Item]:
    return code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
