"""What holds for all tests: their order, and no MLflow but their own."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole runs last."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the developer's store, and the last test's: MLflow leaves the one it used in the environment."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
