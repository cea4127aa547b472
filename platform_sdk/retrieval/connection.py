"""Connections to Milvus: a server, or a Milvus Lite file with its engine in this process."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.files import expanded
from platform_sdk.sampling.rollout import RetrieverFault

if TYPE_CHECKING:
    from pymilvus import MilvusClient

log = logging.getLogger(__name__)

# By default gRPC waits up to two minutes before it reconnects to a lost server.
RECONNECT = {"grpc.initial_reconnect_backoff_ms": 200, "grpc.min_reconnect_backoff_ms": 200,
             "grpc.max_reconnect_backoff_ms": 2000}  # fmt: skip

# All clients of one Lite file share one engine; closing the last client stops it.
_clients: Counter[Path] = Counter()
_lite = threading.Lock()
LOCK_PAUSE = 0.5  # seconds between two checks of a file in use


def lite_path(spec: RetrievalSpec, directory: Path) -> Path | None:
    """Return the recipe's Milvus Lite file, by default in ``directory``; None if the recipe names a server.

    Raises:
        UserError: the file is in the home directory of an unknown user.
    """
    if spec.backend == "server":
        return None
    return (expanded(spec.uri, "retrieval.uri") if spec.uri else directory / "milvus.db").resolve()


def connect(spec: RetrievalSpec, path: Path | None) -> MilvusClient:
    """Return a client of the recipe's server, or of the Milvus Lite file at ``path``; release it with ``close``.

    If another process has the file open, such as a job that outlived its launcher, wait for up to
    ``spec.patience_seconds``.

    Raises:
        UserError: the server cannot be reached, or the file is still in use by another process or is not Milvus Lite's.
    """
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

    # pymilvus logs a traceback for every error and every attempt to reach an unavailable server.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    if path is None:
        try:
            token = os.environ.get(spec.token_env, "")
            return MilvusClient(uri=str(spec.uri), token=token, grpc_options=RECONNECT)
        except MilvusException as error:
            raise UserError(
                f"Milvus at {spec.uri} cannot be reached or refuses the token in {spec.token_env}: {error.message}"
            ) from error
    _wait_until_free(path, spec.patience_seconds)
    with _lite:
        client = _open(path)
        _clients[path] += 1
    return client


def close(client: MilvusClient, path: Path | None) -> None:
    """Release the client; a Lite file without clients is free for another process."""
    client.close()
    if path is None:
        return
    from milvus_lite.server_manager import server_manager_instance

    with _lite:
        _clients[path] -= 1
        if not _clients[path]:
            server_manager_instance.release_server(str(path))


@contextmanager
def milvus_faults() -> Iterator[None]:
    """Turn Milvus errors into a ``RetrieverFault``."""
    from grpc import RpcError  # pymilvus lets some through
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        raise RetrieverFault(f"Milvus: {error.message}") from error
    except RpcError as error:
        raise RetrieverFault(f"Milvus: {error.code().name}: {error.details()}") from error


def _open(path: Path) -> MilvusClient:
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

    path.parent.mkdir(parents=True, exist_ok=True)
    # Lite's server, a thread of this process, logs a traceback for each unsupported call of pymilvus.
    logging.getLogger("grpc._server").setLevel(logging.CRITICAL)
    server_log = logging.getLogger("milvus_lite.server_manager")
    was = server_log.disabled
    server_log.disabled = True  # its traceback adds nothing to the error below
    try:
        # Lite's server closes the connection of an idle client that pings every ten seconds.
        return MilvusClient(uri=str(path), grpc_options={"grpc.keepalive_time_ms": 2**31 - 1})
    except MilvusException as error:
        if _is_locked(path):
            raise UserError(
                f"{path} is in use by another process, and Milvus Lite serves one at a time: wait until that process "
                "has ended, or give retrieval.uri (another .db path, or a Milvus server, which serves many)",
                code="retrieval.index-in-use",
            ) from error
        raise UserError(
            f"{path} cannot be opened as a Milvus Lite file: {error.message}; delete it to rebuild it"
        ) from error
    finally:
        server_log.disabled = was


def _wait_until_free(path: Path, seconds: float) -> None:
    """Wait until no other process has the Lite file open, or until the deadline; opening it then reports the error."""
    deadline = time.monotonic() + seconds
    told = False
    while time.monotonic() < deadline and not _clients[path] and _is_locked(path):
        if not told:
            log.warning("%s is in use by %s; waiting up to %g s for it to end", path, _holder(path), seconds)
            told = True
        time.sleep(min(LOCK_PAUSE, seconds))


def _holder(path: Path) -> str:
    """Return the process that has the Lite file open, if it runs on this machine."""
    try:
        inode = str((path / "LOCK").stat().st_ino)
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        # 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
        found = [fields[4] for fields in locks if len(fields) > 5 and fields[5].rpartition(":")[2] == inode]
        words = Path("/proc", found[0], "cmdline").read_text(errors="replace").split("\0") if found else []
    except OSError:
        found, words = [], []
    return f"process {found[0]} ({' '.join(words)[:80].strip()})" if words else "another process"


def _is_locked(path: Path) -> bool:
    try:
        with (path / "LOCK").open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
