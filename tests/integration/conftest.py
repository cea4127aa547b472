"""The images that were built, and folders that their processes may write; see ``test_images.py``."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.integration.containers import Podman, opened

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def podman() -> Podman:
    images, command = os.environ.get("HOPFORGE_IMAGES"), os.environ.get("HOPFORGE_PODMAN", "podman")
    if images is None:
        pytest.skip("HOPFORGE_IMAGES is not set; run make test-images")
    if shutil.which(command.split()[0]) is None:
        pytest.skip("podman is not installed")
    return Podman(command, images, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


@pytest.fixture
def workspace(podman: Podman, tmp_path: Path) -> Path:
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):  # pytest's own are closed to others
        parent.chmod(0o755)
    path = tmp_path / "workspace"
    path.mkdir()
    return opened(path)
