"""The retriever service under load, and what joining concurrent requests is worth.

Two hundred clients ask at once, each its next question as soon as it has its answer, of a service over a generated
corpus with the default encoder and Milvus Lite. The peer is the same service with joining off (``batch: 1``): one
encoder and one Milvus call per request. First the service must stand a minute without an error; then both take
turns. No question is asked twice of one service, so that its memory of questions does not help. Every answer counts,
and answers to one question must be equal, whoever gave them. Service, peer and load are processes of their own; CPU
seconds are the service's, so that a busy machine distorts their ratio little.

    OMP_NUM_THREADS=1 python benchmarks/retriever.py [--method prograph] [--clients 200] [--seconds 60] [--rounds 3] …
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import yaml

from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.graph import GraphSpec
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.dataset import prepare
from platform_sdk.graph.build import build as build_graph
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Passage
from platform_sdk.retrieval.index import build_index

K = 5
ENVIRONMENT = "world-text"
WORDINGS = (
    "Where was {} born ?", "Who is married to {} ?", "Who is the mother of {} ?", "Who directed {} ?",
    "Where is {} based ?", "When was {} founded ?", "Who wrote {} ?", "Which country is {} in ?",
    "Who is the mayor of {} ?", "What is known of {} ?",
)  # fmt: skip


@dataclass
class Load:
    """Experience of the clients: seconds of every answer, the answers by question, and the failures."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def quantiles(self) -> str:
        p50, p95, p99 = np.quantile(self.latencies, (0.5, 0.95, 0.99))
        return f"p50 {p50:.2f} s, p95 {p95:.2f} s, p99 {p99:.2f} s"


def load(url: str, questions: Sequence[str], clients: int, seconds: float) -> Load:
    """Ask for ``seconds``, ``clients`` at a time; a question that is being asked then is still answered."""
    met = Load()
    upcoming = iter(questions)

    async def client(tls: ssl.SSLContext, until: float) -> None:
        # A session for each: httpx looks through all connections of a session at every request.
        async with httpx.AsyncClient(base_url=url, timeout=60, verify=tls) as session:
            await ask(session, until)

    async def ask(session: httpx.AsyncClient, until: float) -> None:
        while time.monotonic() < until:
            question = next(upcoming, None)
            assert question is not None, "the questions ran out; raise --entities"
            began = time.monotonic()
            try:
                answer = await session.post("/v1/search", json={"queries": [{"query": question}], "k": K})
            except httpx.TransportError as error:
                met.errors.append(f"{type(error).__name__}: {error}")
                continue
            if answer.status_code == 200:
                met.latencies.append(time.monotonic() - began)
                met.answers[question] = answer.json()["results"][0]["evidence"]
            else:
                met.errors.append(f"{answer.status_code}: {answer.text}")

    async def everybody() -> None:
        tls = ssl.create_default_context()
        began = time.monotonic()
        await asyncio.gather(*(client(tls, began + seconds) for _ in range(clients)))
        met.seconds = time.monotonic() - began

    asyncio.run(everybody())
    return met


def load_aside(url: str, questions: list[str], clients: int, seconds: float) -> Load:
    """Run ``load`` in a separate process; remove its questions from the list."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        met = pool.apply(load, (url, questions, clients, seconds))
    del questions[: len(met.answers) + len(met.errors)]
    return met


@dataclass
class Service:
    """A running service."""

    url: str
    metrics_url: str
    pid: int

    def cpu(self) -> float:
        """CPU seconds so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self) -> float:
        """The most memory it had, in MiB."""
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.M)
        assert found is not None
        return int(found[1]) / 1024

    def metric(self, name: str) -> float:
        found = re.search(rf"^hopforge_retriever_{name}{{.*}} (\S+)$", httpx.get(self.metrics_url).text, re.M)
        return float(found[1]) if found else 0.0


@contextmanager
def served(run_dir: Path, retrieval: RetrievalSpec, batch: int) -> Iterator[Service]:
    """``hopforge serve retriever`` over the run directory."""
    collection = CollectionSpec(name="world", run_dir=run_dir, environment=ENVIRONMENT, retrieval=retrieval)
    config = run_dir / "service.yaml"
    config.write_text(yaml.safe_dump(ServiceSpec(collections=(collection,), batch=batch).model_dump(mode="json")))
    with socket.socket() as listener, socket.socket() as other:
        listener.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, metrics_port = listener.getsockname()[1], other.getsockname()[1]
    command = ["-m", "platform_sdk.cli", "serve", "retriever", "--config", str(config), "--port", str(port)]
    command += ["--metrics-port", str(metrics_port)]
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL)
    service = Service(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics_port}/metrics", process.pid)
    try:
        while True:
            assert process.poll() is None, "the service ended"
            try:
                if httpx.get(f"{service.url}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        yield service
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the first, uninterrupted load")
    parser.add_argument("--rounds", type=int, default=3, help="of 10 s for each of both")
    parser.add_argument("--entities", type=int, default=3000)
    parser.add_argument("--method", default="passages", help="retrieval method; a graph is built by rules")
    arguments = parser.parse_args()
    retrieval = RetrievalSpec(method=arguments.method, threads=1)
    with tempfile.TemporaryDirectory() as directory:
        own, peer = Path(directory, "joined"), Path(directory, "alone")
        world = WorldSpec(entities=arguments.entities, train_questions=1, eval_questions=1)
        prepare(DatasetSpec(format="world", world=world), None, own)
        build_graph(own, GraphSpec())
        rows = build_index(own, retrieval, ENVIRONMENT).rows
        shutil.copytree(own, peer)
        titles = [passage.title for passage in read_jsonl(own / "corpus/passages.jsonl", Passage)]
        asked = [wording.format(title) for title in titles for wording in WORDINGS]
        random.Random(0).shuffle(asked)
        with served(own, retrieval, 256) as joined, served(peer, retrieval, 1) as alone:
            compare(joined, alone, asked, rows, arguments)


def compare(joined: Service, alone: Service, asked: list[str], rows: int, arguments: argparse.Namespace) -> None:
    services = {"joined": joined, "alone": alone}
    questions = {name: list(asked) for name in services}
    clients = arguments.clients
    print(f"{arguments.method}: {rows} texts, {clients} clients, one question a request, k = {K}")
    minute = load_aside(joined.url, questions["joined"], clients, arguments.seconds)
    assert not minute.errors, minute.errors[:3]
    batch = joined.metric("batch_queries_sum") / joined.metric("batch_queries_count")
    print(
        f"  {minute.seconds:.0f} s: {len(minute.latencies)} answers, no error, {minute.rate:.0f} requests/s, "
        f"{minute.quantiles()}, {batch:.0f} queries a call, at most {joined.peak():.0f} MiB"
    )
    answers: dict[str, dict[str, Any]] = {"joined": dict(minute.answers), "alone": {}}
    rates: dict[str, list[float]] = {name: [] for name in services}
    cpu: dict[str, list[float]] = {name: [] for name in services}
    for _ in range(arguments.rounds):
        for name, service in services.items():
            before = service.cpu()
            met = load_aside(service.url, questions[name], clients, 10)
            assert not met.errors, met.errors[:3]
            cpu[name].append((service.cpu() - before) / len(met.latencies))
            rates[name].append(met.rate)
            answers[name] |= met.answers
            print(f"  {name:6} {met.rate:6.0f} requests/s, {1000 * cpu[name][-1]:5.1f} CPU ms each, {met.quantiles()}")
    both = answers["joined"].keys() & answers["alone"].keys()
    assert len(both) > len(answers["alone"]) // 2
    assert all(answers["joined"][question] == answers["alone"][question] for question in both), "the answers differ"
    print(f"  {len(both)} questions were answered by both, all of them equally")
    for what, ratios in (
        ("requests/s", [a / b for a, b in zip(rates["joined"], rates["alone"], strict=True)]),
        ("CPU seconds", [b / a for a, b in zip(cpu["joined"], cpu["alone"], strict=True)]),
    ):
        print(f"  joined is {median(ratios):.2f} times as fast in {what} ({', '.join(f'{r:.2f}' for r in ratios)})")


if __name__ == "__main__":
    main()
