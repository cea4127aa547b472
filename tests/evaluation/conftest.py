"""Fixtures of the evaluation tests."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def plain() -> ModuleType:
    """The straightforward reading of the definitions: the peer of ``benchmarks/metrics.py`` is the oracle here."""
    spec = importlib.util.spec_from_file_location("benchmarks_metrics", ROOT / "benchmarks" / "metrics.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data sets; the tests that need it are skipped where it is not."""
    folder = Path(os.environ.get("HOPFORGE_DATA", ROOT / "../shared/data")).resolve()
    if not (folder / "hotpotqa").is_dir():
        pytest.skip("the real data sets are not here; HOPFORGE_DATA names their folder")
    return folder
