"""A small stateful Kubeflow Pipelines server that speaks v2beta1's REST protocol over a socket.

It keeps pipelines, versions, experiments and runs; refuses what the real one refuses (names taken, unknown namespaces,
unknown or mistyped arguments, users without a token); fails on demand, before or after it did what was asked; and ends
a session on demand, as what stands before the real one does: with a page to log in, or by sending there.
"""

from __future__ import annotations

import email.parser
import email.policy
import json
import ssl
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from ruamel.yaml import YAML

Item = dict[str, Any]
LOST, LOGIN_PAGE, TO_LOGIN = "lost", "login page", "to the login page"
LOGIN = "/dex/auth"
PAGE = b"<!doctype html><title>Log in</title>"
TYPES = {"NUMBER_INTEGER": (int,), "NUMBER_DOUBLE": (int, float), "STRING": (str,), "BOOLEAN": (bool,)}


class HttpError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class KfpServer:
    """Use as a context manager; ``url`` is where it listens.

    ``fault`` is asked for every request: a status to answer with instead, ``LOST`` to do what is asked and hang up,
    ``LOGIN_PAGE`` to show one, ``TO_LOGIN`` to send to one, or None. With ``tls`` it speaks that only.
    """

    def __init__(
        self, *, namespaces: tuple[str, ...] = (), token: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.namespaces, self.token = namespaces, token
        self.pipelines: list[Item] = []
        self.versions: list[Item] = []
        self.experiments: list[Item] = []
        self.runs: list[Item] = []
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], int | str | None] = lambda method, path: None
        self._number = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = 1 << 16

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                split = urlsplit(self.path)
                server.requests.append((self.command, split.path))
                fault = server.fault(self.command, split.path)
                query = {key: values[0] for key, values in parse_qs(split.query).items()}
                if fault == TO_LOGIN and split.path != LOGIN:
                    self._send(302, b"", "text/html", Location=f"{LOGIN}?state=hidden")
                    return
                if fault in (LOGIN_PAGE, TO_LOGIN):
                    self._send(200, PAGE, "text/html; charset=utf-8")
                    return
                try:
                    if isinstance(fault, int):
                        raise HttpError(fault, f"HTTP {fault} on demand")
                    status, answer = 200, server.answer(self.command, unquote(split.path), query, self.headers, body)
                except HttpError as error:
                    status, answer = error.status, {"error": error.message, "message": error.message, "details": []}
                if fault == LOST:
                    self.close_connection = True
                    return
                self._send(status, json.dumps(answer).encode(), "application/json")

            def _send(self, status: int, data: bytes, type_: str, **headers: str) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": type_, "Set-Cookie": "session=hidden", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _handle

            def log_message(self, *arguments: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> KfpServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, query: dict[str, str], headers: Any, body: bytes) -> Any:
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            raise HttpError(401, "Request header error: there is no user identity header.")
        parts = path.removeprefix("/apis/v2beta1/").split("/")
        match method, parts:
            case "GET", ["healthz"]:
                return {"multi_user": bool(self.namespaces)}
            case "GET", ["pipelines"]:
                namespace = query.get("namespace", "")
                self._check_namespace(namespace, needed=False)
                found = [one for one in self.pipelines if one.get("namespace", "") == namespace]
                return _page("pipelines", found, query)
            case "POST", ["pipelines"]:
                return self._make(self.pipelines, "pipeline", json.loads(body), needs_namespace=False)
            case "GET", ["pipelines", id_, "versions"]:
                found = [one for one in self.versions if one["pipeline_id"] == id_]
                return _page("pipeline_versions", found, query)
            case "GET", ["pipelines", _, "versions", id_]:
                return self._get(self.versions, "pipeline_version", id_)
            case "POST", ["pipelines", "upload_version"]:
                return self._upload(query, headers, body)
            case "GET", ["experiments"]:
                self._check_namespace(query.get("namespace", ""), needed=True)
                namespace = query.get("namespace", "")
                found = [one for one in self.experiments if one.get("namespace", "") == namespace]
                return _page("experiments", found, query)
            case "POST", ["experiments"]:
                made = self._make(self.experiments, "experiment", json.loads(body), needs_namespace=True)
                return made | {"storage_state": "AVAILABLE"}
            case "GET", ["experiments", id_]:
                return self._get(self.experiments, "experiment", id_)
            case "GET", ["runs"]:
                found = self.runs
                if "experiment_id" in query:
                    found = [one for one in found if one["experiment_id"] == query["experiment_id"]]
                else:
                    self._check_namespace(query.get("namespace", ""), needed=True)
                return _page("runs", found[::-1], query)
            case "POST", ["runs"]:
                return self._start(json.loads(body))
            case "GET", ["runs", id_]:
                return self._get(self.runs, "run", id_)
            case "POST", ["runs", call] if call.endswith(":terminate"):
                run = self._get(self.runs, "run", call.removesuffix(":terminate"))
                if run["state"] in ("SUCCEEDED", "FAILED", "CANCELED"):
                    raise HttpError(400, f"run {run['run_id']} has finished and cannot be terminated")
                run["state"] = "CANCELING"
                return {}
        raise HttpError(404, f"{method} {path}")

    def run(self) -> Item:
        """The only run there is."""
        [found] = self.runs
        return found

    def steps(self, **states: str) -> None:
        """Let the run's steps be in these states, as the real server says it: drivers, and pods called executor."""
        details = []
        for name, state in states.items():
            task = name.replace("_", "-")
            details.append({"display_name": f"{task}-driver", "task_id": f"{task}-d", "state": "SUCCEEDED"})
            details.append(
                {
                    "display_name": task,
                    "task_id": f"{task}-id",
                    "state": state,
                    "start_time": "2027-01-15T08:00:00Z",
                    "end_time": "1970-01-01T00:00:00Z" if state == "RUNNING" else "2027-01-15T08:01:30Z",
                    "child_tasks": [{"pod_name": f"node-{task}"}],
                }
            )
            details.append({"display_name": "executor", "task_id": f"{task}-e", "state": state})
        self.run()["run_details"] = {"task_details": details}

    def _upload(self, query: dict[str, str], headers: Any, body: bytes) -> Item:
        self._get(self.pipelines, "pipeline", query["pipelineid"])
        message = email.parser.BytesParser(policy=email.policy.default).parsebytes(
            b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body
        )
        [part] = [one for one in message.iter_parts() if one.get_param("name", header="content-disposition")]
        documents = [one for one in YAML(typ="safe").load_all(part.get_content().decode()) if one]
        json_format.ParseDict(documents[0], pipeline_spec_pb2.PipelineSpec())
        spec = {"pipeline_spec": documents[0]} | ({"platform_spec": documents[1]} if documents[1:] else {})
        taken = [one for one in self.versions if one["pipeline_id"] == query["pipelineid"]]
        version = {
            "pipeline_id": query["pipelineid"], "display_name": query["name"],
            "description": query.get("description", ""), "pipeline_spec": spec,
        }  # fmt: skip
        return self._add(self.versions, taken, "pipeline_version", version)

    def _start(self, body: Item) -> Item:
        self._get(self.experiments, "experiment", body["experiment_id"])
        version = self._get(
            self.versions, "pipeline_version", body["pipeline_version_reference"]["pipeline_version_id"]
        )
        form = version["pipeline_spec"]["pipeline_spec"]["root"].get("inputDefinitions", {}).get("parameters", {})
        given = body.get("runtime_config", {}).get("parameters", {})
        for name, value in given.items():
            if name not in form:
                raise HttpError(400, f"parameter {name} is not an input of the pipeline")
            kind = TYPES[form[name]["parameterType"]]
            if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind):
                raise HttpError(400, f"parameter {name} has a wrong type: {value!r}")
        run = {**body, "state": "PENDING", "storage_state": "AVAILABLE", "created_at": "2027-01-15T08:00:00Z"}
        return self._add(self.runs, [], "run", run)

    def _make(self, items: list[Item], kind: str, body: Item, *, needs_namespace: bool) -> Item:
        namespace = body.get("namespace") or ""
        self._check_namespace(namespace, needed=needs_namespace)
        taken = [one for one in items if one.get("namespace", "") == namespace]
        return self._add(items, taken, kind, {**body, "namespace": namespace})

    def _add(self, items: list[Item], taken: list[Item], kind: str, body: Item) -> Item:
        if any(one["display_name"] == body["display_name"] for one in taken):
            raise HttpError(409, f"Already exist error: a {kind} named {body['display_name']}")
        self._number += 1
        items.append(body | {f"{kind}_id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind} {self._number}"))})
        return items[-1]

    def _get(self, items: list[Item], kind: str, id_: str) -> Item:
        for one in items:
            if one[f"{kind}_id"] == id_:
                return one
        raise HttpError(404, f"ResourceNotFoundError: {kind} {id_} not found.")

    def _check_namespace(self, namespace: str, *, needed: bool) -> None:
        if not self.namespaces and namespace:
            raise HttpError(400, "Invalid input error: In single-user mode, namespaces are not to be given.")
        if self.namespaces and needed and not namespace:
            raise HttpError(400, "Invalid input error: An experiment cannot have an empty namespace in multi-user mode")
        if namespace and namespace not in self.namespaces:
            raise HttpError(403, f"User 'me' is not authorized with reason: (request: namespace {namespace})")


def _page(field: str, found: list[Item], query: dict[str, str]) -> Item:
    for predicate in json.loads(query.get("filter") or "{}").get("predicates", ()):
        assert predicate["operation"] == "EQUALS"
        found = [one for one in found if one[predicate["key"]] == predicate["stringValue"]]
    start = int(query.get("page_token") or 0)
    end = start + int(query.get("page_size") or 10)
    page: Item = {field: found[start:end], "total_size": len(found)} if found else {}
    return page | ({"next_page_token": str(end)} if end < len(found) else {})
