"""Fixtures of the evaluation tests."""

from __future__ import annotations

import importlib.util
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
