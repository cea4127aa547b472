"""Which MLflow store a run goes to."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DATABASE = "mlflow.db"
ARTIFACTS = "mlartifacts"
STATE_FILE = "mlflow.json"


def store_uri(run_dir: Path) -> str:
    """Return ``MLFLOW_TRACKING_URI``, or else an SQLite file beside ``run_dir`` that all runs there share."""
    return os.environ.get("MLFLOW_TRACKING_URI") or folder_uri(run_dir.resolve().parent)


def folder_uri(folder: Path) -> str:
    """Return the URI of the SQLite store of a folder of run directories."""
    return f"sqlite:///{folder.resolve() / DATABASE}"


def artifact_location(uri: str, experiment: str) -> str | None:
    """Return where an SQLite store keeps the artifacts of an experiment: beside it; None: the server decides."""
    if not uri.startswith("sqlite:///"):
        return None
    return (Path(uri.removeprefix("sqlite:///")).parent / ARTIFACTS / experiment).as_uri()


@contextmanager
def made_by_one(uri: str) -> Iterator[None]:
    """Within, no other process makes the same SQLite store: two that begin at once would trip over each other."""
    if not uri.startswith("sqlite:///"):
        yield
        return
    database = Path(uri.removeprefix("sqlite:///"))
    database.parent.mkdir(parents=True, exist_ok=True)
    with database.with_name(f".{database.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
