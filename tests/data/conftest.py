"""Fixtures of the data tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data sets; the tests that need it are skipped where it is not."""
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("HOPFORGE_DATA", root / "../shared/data")).resolve()
    if not (folder / "hotpotqa").is_dir():
        pytest.skip("the real data sets are not here; HOPFORGE_DATA names their folder")
    return folder
