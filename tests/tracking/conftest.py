"""A finished run with its store and log, written once; tests change copies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.tracking.small_run import RUN, write_small_run


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("original"))


@pytest.fixture(scope="session")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another run of the same name, whose files, manifest, journals, MLflow and log agree."""
    return written(tmp_path_factory.mktemp("rewritten"))


def written(folder: Path) -> Path:
    """Write a finished run into a folder, and deliver it to the folder's store."""
    write_small_run(folder / RUN)
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # MLflow sets it to the last store
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copied"))
