"""Dependencies of the service, as processes that tests may kill: a Milvus server, the service, and an encoder.

The Milvus server is Milvus Lite's own, which speaks Milvus's protocol; the encoder is an embeddings endpoint in this
process, so that a service starts without loading a model. Where nobody is killed the service is in this process too.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx
import pytest
import uvicorn
import yaml

from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import ServiceSpec
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.dataset import prepare
from platform_sdk.retrieval.service.app import create_app
from platform_sdk.retrieval.service.hosting import Host
from platform_sdk.retrieval.service.metrics import Metrics
from platform_sdk.retrieval.service.server import Server
from platform_sdk.retrieval.service.tls import Certificate
from platform_sdk.retrieval.service.tokens import Tokens
from tests.http_server import HttpRequest, HttpResponse, HttpServer
from tests.process_watch import free_port, wait_for

HOME = Path(__file__).parents[2]
STARTED_WITHIN = 120.0  # seconds; a busy machine


def prepare_world(run_dir: Path, entities: int = 40) -> None:
    world = WorldSpec(entities=entities, train_questions=5, eval_questions=20)
    prepare(DatasetSpec(format="world", world=world), None, run_dir)


class Process:
    """A command that listens on a port, and is started again on the same one."""

    def __init__(self, *command: str, port: int) -> None:
        self.command, self.port = [sys.executable, *command], port
        self.start()

    def start(self) -> None:
        path = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            self.command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.printed: list[str] = []
        self._reading = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reading.start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.printed.append(line.decode(errors="replace"))

    def end(self, sig: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(sig)
        status = self.process.wait(STARTED_WITHIN)
        self._reading.join(STARTED_WITHIN)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end()


class Milvus(Process):
    """A Milvus server over a directory."""

    def __init__(self, directory: Path) -> None:
        port = free_port()
        super().__init__(
            *("-m", "milvus_lite", "server", "--data-dir", str(directory), "--host", "127.0.0.1", "--port", str(port)),
            port=port,
        )

    def start(self) -> None:
        super().start()
        deadline = time.monotonic() + STARTED_WITHIN
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"Milvus did not start: {self.printed}")

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Service(Process):
    """``hopforge serve retriever``; ``start`` does not wait until it is ready. ``before`` is Python that runs first."""

    def __init__(self, directory: Path, spec: ServiceSpec, *options: str, before: str = "") -> None:
        port, self.metrics_port = free_port(), free_port()
        config = directory / f"service-{port}.yaml"
        config.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
        super().__init__(
            *("-c", f"{before}\nfrom platform_sdk.cli import main\nmain()"),
            *("serve", "retriever", "--config", str(config), "--port", str(port)),
            *("--metrics-port", str(self.metrics_port), *options),
            port=port,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    def status(self) -> tuple[int, dict[str, str]]:
        """Return the answer of /readyz; (0, {}) while nothing listens."""
        try:
            answer = httpx.get(f"{self.url}/readyz", verify=False)  # no certificates are read for it, many times over
        except httpx.TransportError:
            return 0, {}
        return answer.status_code, answer.json()

    def ready(self) -> Self:
        deadline = time.monotonic() + STARTED_WITHIN
        while self.status()[0] != 200:
            assert time.monotonic() < deadline, self.printed
            assert self.process.poll() is None, self.printed
            time.sleep(0.05)
        return self


class Embeddings(HttpServer):
    """An encoder that costs nothing: vectors drawn from a text's hash. A key for it is in the environment.

    While ``gate`` is closed it answers nothing that is longer than a word (an encoder is asked for a word when it is
    loaded), once it has answered ``ungated`` texts; ``asked`` are the texts it was sent, ``texts`` those answered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.texts: list[str] = []
        self.ungated = 0

    def spec(self, model: str = "hash") -> RetrievalSpec:
        """Return the recipe's name for it; under another name it is another encoder."""
        return RetrievalSpec(encoder=f"openai:{model}@{self.url}/v1", batch_size=256)

    def answer(self, request: HttpRequest) -> HttpResponse:
        texts = request.json()["input"]
        self.asked += texts
        if " " in texts[0] and len(self.texts) >= self.ungated:
            self.gate.wait()
        self.texts += texts
        data = [{"object": "embedding", "index": at, "embedding": _vector(text)} for at, text in enumerate(texts)]
        return 200, {"object": "list", "model": "hash", "data": data, "usage": {}}

    def __enter__(self) -> Self:
        self._environment = pytest.MonkeyPatch()
        self._environment.setenv("OPENAI_API_KEY", "any")
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        super().__exit__()
        self._environment.undo()


def _vector(text: str) -> list[float]:
    return [byte - 127.5 for byte in hashlib.sha256(text.encode()).digest()]


@contextmanager
def served(
    spec: ServiceSpec, tokens: Tokens | None = None, port: int = 0, ready: bool = True,
    metrics: Metrics | None = None, certificate: Certificate | None = None,
) -> Iterator[str]:  # fmt: skip
    """The service in a thread of this process; its address."""
    app = create_app(spec, tokens, metrics or Metrics())
    server = Server(app, port=port, connections=spec.connections, certificate=certificate, log_level="error")
    thread = threading.Thread(target=uvicorn.Server.run, args=(server,))  # the service's own may end the process
    thread.start()
    try:
        wait_for(lambda: server.started and bool(server.servers), STARTED_WITHIN, 0.01)
        scheme = "https" if certificate else "http"
        url = f"{scheme}://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        host: Host = app.state.host
        if ready:
            wait_for(lambda: host.status.status == "ready", STARTED_WITHIN, 0.01)
        yield url
    finally:
        server.should_exit = True
        thread.join()
