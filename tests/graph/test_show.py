"""The page of an entity's neighbourhood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from platform_sdk.graph.facts import Fact, Mention
from platform_sdk.graph.show import MAX_EDGES, find_entity, neighbourhood, write_page
from platform_sdk.records import Source
from tests.graph.small import graph_of

HOSTILE = "</script><img src=x onerror='window.hurt=1'>\" 'שלום' \u202ereversed"


@pytest.fixture
def opened(open_page: Any, tmp_path: Path) -> Any:
    """Return a function that opens the page of the entity Hub with that many hyperedges."""

    def page_of(hyperedges: int) -> Any:
        facts = [
            Fact(
                text=f"Fact {number} about Hub. {HOSTILE}",
                entities=tuple(
                    Mention(name=name) for name in ("Hub", f"Spoke {number}", f"Friend {number // 2} {HOSTILE}")
                ),
                source=Source(passage=f"p{number}"),
            )
            for number in range(hyperedges)
        ]
        graph = graph_of(facts)
        path = tmp_path / "page.html"
        write_page(neighbourhood(graph, find_entity(graph, "hub")), path)
        return open_page(path.read_text())

    return page_of


def test_neighbourhood_is_drawn_listed_and_searched_with_any_names(opened: Any) -> None:
    page = opened(6)
    assert page.inner_text("h1") == "Hub"
    assert page.locator(".hypergraph .edge").count() == 6
    assert page.locator(".joint .root").all_inner_texts() == ["Hub"]
    assert page.locator(".joint .entity").count() == 4  # Hub, and three friends of two hyperedges each
    assert page.locator(".own .entity").count() == 6
    assert page.locator("#rows tr").count() == 6
    page.fill("#search", "SPOKE 4")
    assert page.inner_text("#count") == "1 of 6 hyperedges match."
    assert page.locator("#rows tr").count() == page.locator(".hypergraph .edge").count() == 1
    assert HOSTILE in page.inner_text("#rows")
    assert page.locator("#rows bdi[dir=auto]").count() == 5  # the text, three names and the passage, each by itself
    page.fill("#search", "no such thing")
    assert "Nothing matches" in page.inner_text("#drawn")
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0
    for width in (1200, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_hub_is_bounded_and_the_page_says_so(opened: Any) -> None:
    page = opened(MAX_EDGES + 7)
    assert f"holds the {MAX_EDGES:,} hyperedges of the fewest entities out of {MAX_EDGES + 7:,}" in page.inner_text(
        ".title"
    )
    assert page.locator(".hypergraph .edge").count() == 24
    assert f"The first 24 of {MAX_EDGES} hyperedges are drawn." in page.inner_text("#drawn")
    assert page.locator("#rows tr").count() == 100
    page.click("#more")
    assert page.locator("#rows tr").count() == 200
