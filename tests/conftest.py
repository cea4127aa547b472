"""Rules for all tests: their order, no MLflow but their own, and one browser."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

from platform_sdk.tracking import store

# The same examples in every run: a red test is a change's fault. More are drawn with --hypothesis-profile=default.
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")

HERE = Path(__file__).parent
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Files and folders by how soon they tell: first those that need neither a process nor a model, late whole runs. The
# longest prefix of a file's path decides.
ORDER = (
    (
        "test_imports", "test_docstrings", "test_records", "config", "data", "evaluation/metrics",
        "evaluation/test_answers", "methods",
        "sampling/test_dialogue", "sampling/test_rollout", "tracking/test_journal", "tracking/test_manifest",
        "tracking/test_outcomes", "tracking/test_updates", "training/test_advantages", "training/test_batches",
        "training/test_examples", "training/test_group_relative", "training/test_objectives", "faults",
    ),
    ("", "methods/arena/test_steps", "methods/test_launch"),
    (
        "methods/mygo/test_shared", "training/online/test_resume_online", "training/test_cluster_job",
        "training/test_component", "training/test_grpo_training", "training/test_resume", "retrieval/service",
    ),
    ("integration", "chaos", "e2e"),
    # Many short tests: while one worker ends its last whole run, the other has something to do.
    ("kubeflow",),
)  # fmt: skip


# Modules and collected tests stay to the end: collections of garbage that visit millions of their objects, again and
# again, took a third of the time of collecting tests, and slowed down the tests themselves.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again from here on, but only in objects that the tests make."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Do so again after each file: libraries that tests import late are no garbage either.

    A trainer of transformers collects garbage at its end; with all of them loaded, that takes half a second.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files, which go to the workers whole: quick folders first, then others, whole runs, and filling at last.

    Of whole runs the long ones come first, so that no worker waits for another's at the end.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def place(item: pytest.Item) -> tuple[int, bool, float]:
        run = item.get_closest_marker("e2e")
        return _rank(item.path), item.path in slow, -run.kwargs.get("minutes", 0) if run else 0

    items.sort(key=place)


def _rank(path: Path) -> int:
    name = path.relative_to(HERE).as_posix()
    return max(
        (len(prefix), rank) for rank, prefixes in enumerate(ORDER) for prefix in prefixes if name.startswith(prefix)
    )[1]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the developer's store and log, and the last test's: MLflow leaves its store in the environment."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME", "HOPFORGE_LOG"):
        os.environ.pop(name, None)


@pytest.fixture(scope="module", autouse=True)
def _default_mlflow_store() -> Iterator[None]:
    """Let MLflow, where it is imported, forget the store of a file's tests after them."""
    yield
    if "mlflow" in sys.modules:
        sys.modules["mlflow"].set_tracking_uri(None)


@pytest.fixture(scope="session", autouse=True)
def _one_empty_mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Create MLflow's empty store once in this process and copy it: its sixty migrations take more than a second."""
    create, empty = store._create, tmp_path_factory.mktemp("mlflow") / "empty.db"

    def copy(database: Path) -> None:
        if not empty.is_file():
            create(empty)
        shutil.copyfile(empty, database)

    with mock.patch.object(store, "_create", copy):
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data sets; the tests that need it are skipped where it is not."""
    folder = Path(os.environ.get("HOPFORGE_DATA", HERE.parent / "../shared/data")).resolve()
    if not (folder / "hotpotqa").is_dir():
        pytest.skip("the real data sets are not here; HOPFORGE_DATA names their folder")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser without a window; the tests that need it are skipped where there is none."""
    if not CHROMIUM.is_file():
        pytest.skip(f"no browser at {CHROMIUM}: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Opens a page's HTML; in the end nothing may have gone wrong in it, and nothing may have been loaded."""
    pages: list[Any] = []
    troubles: list[str] = []

    def opened(html: str) -> Any:
        path = tmp_path / f"page-{len(pages)}.html"
        path.write_text(html, encoding="utf-8")
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on(
            "request",
            lambda request: troubles.append(request.url) if not request.url.startswith(("file:", "data:")) else None,
        )
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert troubles == []


def pytest_configure() -> None:
    """Let SIGINT interrupt what tests start, also in a shell's background, where it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
