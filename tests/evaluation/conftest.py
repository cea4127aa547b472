"""Fixtures of the evaluation tests."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
