"""What holds for all tests: their order, and no MLflow but their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Where a plain bug shows first: folders whose tests need no process and no model come before those that start many.
FIRST = ("test_imports.py", "test_records.py", "config", "data", "evaluation/metrics", "recipes", "tracking")
LAST = ("retrieval/service", "integration", "e2e")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files, which go to the workers whole: quick folders first, then the others, whole runs and the slow last.

    Of whole runs the long ones come first, so that no worker waits for another's at the end.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def place(item: pytest.Item) -> tuple[int, bool, float]:
        run = item.get_closest_marker("e2e")
        return _rank(item.path), item.path in slow, -run.kwargs.get("minutes", 0) if run else 0

    items.sort(key=place)


def _rank(path: Path) -> int:
    name = path.relative_to(HERE).as_posix()
    order = [*FIRST, "", *LAST]
    matching = [rank for rank, folder in enumerate(order) if folder and name.startswith(folder)]
    # The most particular folder decides: evaluation/metrics comes before the rest of evaluation.
    return max(matching, key=lambda rank: len(order[rank])) if matching else order.index("")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the developer's store, and the last test's: MLflow leaves the one it used in the environment."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
