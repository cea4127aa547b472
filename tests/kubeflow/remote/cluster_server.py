"""The API server as who follows a run meets it: logs that are streams, and rights to one kind but not another."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubeflow.training_job.api_server import ApiServer

Item = dict[str, Any]
RUN_ID, RUN_NAME = "pipeline/runid", "pipelines.kubeflow.org/run_name"
BEGIN = datetime(2027, 1, 15, 8, tzinfo=UTC)
BETWEEN = timedelta(seconds=0.3)
CLEAN, BROKEN = "clean", "broken"


class ClusterServer(ApiServer):
    """Use as its base.

    A log that is followed is sent until its pod has ended, as it grows; its lines were written 0.3 s after another.
    ``cuts`` end the next streams before: after how many bytes, and whether ``CLEAN`` (as at a rotation) or ``BROKEN``
    (the connection lost). What is ``forbidden`` (plurals) is refused even if there is no such kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forbidden: set[str] = set()
        self.cuts: list[tuple[int, str]] = []
        self.log_queries: list[dict[str, str]] = []
        server = self

        class Handler(self._server.RequestHandlerClass):  # type: ignore[name-defined, misc]
            def do_GET(self) -> None:
                split = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(split.query).items()}
                pod = split.path.split("/")[-2]
                if query.get("follow") != "True" or server.fault("GET", split.path) or pod not in server.logs:
                    super().do_GET()
                    return
                server.requests.append(("GET", split.path))
                server.log_queries.append(query)
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                if self._stream(pod, query) == CLEAN:
                    self.wfile.write(b"0\r\n\r\n")
                else:
                    self.close_connection = True

            def _stream(self, pod: str, query: dict[str, str]) -> str:
                most, how = server.cuts.pop(0) if server.cuts else (1 << 30, CLEAN)
                first, sent = server.first(pod, query), 0
                while True:
                    ended = server.pods.get(pod, {}).get("status", {}).get("phase", "Failed") in ("Succeeded", "Failed")
                    data = server.log(pod, first, "timestamps" in query)[sent:most]
                    if data:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                        self.wfile.flush()
                        sent += len(data)
                    if ended or sent == most:
                        return how if sent == most else CLEAN
                    time.sleep(0.01)

        self._server.RequestHandlerClass = Handler

    def add_workflow(self, run_id: str, run_name: str, specification: Item) -> Item:
        """Create the Workflow of a run; drivers find pods' labels in its arguments."""
        name = f"toy-{run_id[:5]}"
        arguments = [{"name": "platform", "value": json.dumps(specification.get("platform_spec", {}))}]
        self.objects["workflows", name] = workflow = {
            "metadata": {
                "name": name, "labels": {RUN_ID: run_id}, "annotations": {RUN_NAME: run_name},
                "creationTimestamp": datetime.now(UTC).isoformat(),
            },
            "spec": {"arguments": {"parameters": arguments}}, "status": {"phase": "Running"},
        }  # fmt: skip
        self.changed(workflow)
        return workflow

    def first(self, pod: str, query: dict[str, str]) -> int:
        """The first line that the query asks for."""
        lines = len(self.logs[pod].splitlines())
        first = max(0, lines - int(query.get("tailLines", lines)))
        if "sinceTime" not in query:
            return first
        since = datetime.fromisoformat(query["sinceTime"])
        assert since.microsecond == 0  # the node is told whole seconds
        return max(first, math.ceil((since - BEGIN) / BETWEEN))

    def log(self, pod: str, first: int, stamped: bool) -> bytes:
        """A pod's log from a line on."""
        lines = [
            f"{BEGIN + BETWEEN * number:%Y-%m-%dT%H:%M:%S.%f}000Z {line}" if stamped else line
            for number, line in enumerate(self.logs[pod].splitlines(keepends=True))
        ]
        return "".join(lines[first:]).encode()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        parts = path.strip("/").split("/")
        if parts[0] == "apis" and len(parts) > 5 and parts[5] in self.forbidden:
            self.requests.append((method, path))
            what = f'{parts[5]}.{parts[1]} is forbidden: User "me" cannot list resource "{parts[5]}"'
            return 403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": what}
        if parts[-1] == "pods" and "pods" in self.forbidden:
            what = 'pods is forbidden: User "me" cannot list resource "pods"'
            return 403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": what}
        if (
            parts[-1] == "log"
            and query.get("previous") != "True"
            and parts[-2] in self.logs
            and not self.fault(method, path)
        ):
            self.requests.append((method, path))
            self.log_queries.append(query)
            return 200, self.log(parts[-2], self.first(parts[-2], query), "timestamps" in query).decode()
        if parts[0] == "apis" and len(parts) > 5 and parts[5] == "workflows" and query.get("labelSelector") == RUN_ID:
            query = {}  # the base knows no label without a value, and every Workflow here has this one
        if parts[-1] == "log" and "tailLines" not in query:
            query = {**query, "tailLines": str(1 << 30)}
        return super().answer(method, path, query, body)
