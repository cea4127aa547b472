"""MLflow store of a run, and the record of deliveries."""

from __future__ import annotations

import fcntl
import hashlib
import operator
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field

from platform_sdk.credentials import without_credentials
from platform_sdk.errors import UserError

DATABASE = "mlflow.db"
ARTIFACTS = "mlartifacts"
STATE_FILE = "mlflow.json"
LOCK_FILE = "lock"
"""Lock file of the delivering process."""
WEIGHTS = "weights"
"""Tag with the weight digest, which identifies models and versions."""


class DeliveryState(BaseModel):
    """Record of deliveries: MLflow ids, and the byte offset reached in each journal; ``sha256`` is of the rest.

    ``ended_in`` is the store (``stored_in``) that received the end of the run; empty before.
    """

    model_config = ConfigDict(defer_build=True)
    run_id: str | None = None
    adopted: bool = False
    experiment_id: str = ""
    steps: dict[str, str] = Field(default_factory=dict)
    offsets: dict[str, int] = Field(default_factory=dict)
    ended_in: str = Field(default="", exclude_if=operator.not_)  # records without it keep their digests
    sha256: str | None = None

    def digest(self) -> str:
        return hashlib.sha256(self.model_dump_json(exclude={"sha256"}).encode()).hexdigest()


def store_uri(run_dir: Path) -> str:
    """Return ``MLFLOW_TRACKING_URI``, or an SQLite file next to ``run_dir``, shared by all runs in the folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or folder_uri(run_dir.resolve().parent)


def stored_in(run_dir: Path) -> str:
    """Return the store of a run without a password, for records."""
    return without_credentials(store_uri(run_dir))


def folder_uri(folder: Path) -> str:
    """Return the URI of the SQLite store of a folder of run directories."""
    return f"sqlite:///{folder.resolve() / DATABASE}"


def check_folder(run_dir: Path) -> None:
    """Check that MLflow can open a store next to a run directory, if it is not named by ``MLFLOW_TRACKING_URI``.

    Raises:
        UserError: the path of the folder has characters with a meaning in the store's URI.
    """
    folder = str(run_dir.resolve().parent)
    if not os.environ.get("MLFLOW_TRACKING_URI") and ("?" in folder or unquote(folder) != folder):
        raise UserError(
            f"{folder}: MLflow cannot open a store in this folder, since its path has a '?' or a percent escape such "
            "as %20; choose another --workdir, or set MLFLOW_TRACKING_URI"
        )


def artifact_location(uri: str, experiment: str) -> str | None:
    """Return the artifact location of an experiment: next to an SQLite store; None for a server, which decides."""
    if not uri.startswith("sqlite:///"):
        return None
    return (Path(uri.removeprefix("sqlite:///")).absolute().parent / ARTIFACTS / _one_folder(experiment)).as_uri()


def _one_folder(name: str) -> str:
    """Return a name as the name of one folder: ``/``, or a name of dots only, would lead to other folders."""
    return name.replace("/", "%2F") if name.strip(".") else name.replace(".", "%2E")


@contextmanager
def made_by_one(uri: str) -> Iterator[None]:
    """Create the SQLite store unless it exists, under a lock against concurrent creation.

    The store is renamed when it is complete: MLflow's migrations are not transactional, so an incomplete store could
    neither be used nor completed.
    """
    if not uri.startswith("sqlite:///"):
        yield
        return
    database = Path(uri.removeprefix("sqlite:///"))
    database.parent.mkdir(parents=True, exist_ok=True)
    with database.with_name(f".{database.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not database.exists():
            _create(database)
        yield


def _create(database: Path) -> None:
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    making = database.with_name(f".{database.name}.making")
    for left in database.parent.glob(f"{making.name}*"):  # of a killed creation, including SQLite's journal
        left.unlink()
    SqlAlchemyStore(f"sqlite:///{making}", DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH).engine.dispose()
    making.replace(database)
