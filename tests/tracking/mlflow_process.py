"""A real MLflow server with an SQLite store and no users, as a process of a test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.process_watch import free_port

NO_JOBS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Environment that switches off the five processes of MLflow's own jobs."""


@contextmanager
def plain_mlflow(folder: Path) -> Iterator[str]:
    """Start the server; yield its address."""
    port = free_port()
    store = ["--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", str(folder)]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (folder / "server.txt").open("wb") as log:
        process = subprocess.Popen([*command, *store], env=os.environ | NO_JOBS, stdout=log, stderr=log, cwd=folder)
    try:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 300
        while not _answers(f"{url}/health"):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
