"""What holds for all tests: their order, and no MLflow but their own."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole runs last; of these the long ones first, so that no worker waits for another's at the end."""

    def place(item: pytest.Item) -> tuple[bool, float]:
        run = item.get_closest_marker("e2e")
        return run is not None, -run.kwargs.get("minutes", 0) if run else 0

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the developer's store, and the last test's: MLflow leaves the one it used in the environment."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
