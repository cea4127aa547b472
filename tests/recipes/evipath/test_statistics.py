"""The statistics of a small set, computed by hand, and the page that shows them."""

from __future__ import annotations

from platform_sdk.recipes.evipath.dialogues import chats
from platform_sdk.recipes.evipath.statistics import acceptance, page, parallelism, reasons, similarities
from tests.recipes.evipath.paths import FIRST, PATH, SECOND

REJECTED = PATH.model_copy(update={"id": "r", "hops": 2, "rejected": "leak", "detail": "<b>turn 1</b>"})
WIDE = PATH.model_copy(update={"id": "w", "steps": (PATH.steps[0].model_copy(update={"asked": (FIRST, SECOND)}),)})
SET = [PATH, REJECTED, WIDE]


def test_acceptance_is_counted_by_a_key() -> None:
    assert acceptance(SET, lambda example: example.hops) == [(2, 1, 0, "0.0 %"), (None, 2, 2, "100.0 %")]


def test_reasons_come_with_a_case() -> None:
    assert reasons(SET) == [("leak", 1, "33.3 %", "<b>turn 1</b>")]


def test_sub_questions_asked_at_once() -> None:
    assert parallelism([PATH, WIDE]) == [(1, 2, "66.7 %"), (2, 1, "33.3 %")]


def test_best_similarities_by_tenths() -> None:
    found = {row[0]: row[1:] for row in similarities([PATH])}  # FIRST's best is 0.8, SECOND's 0.9
    assert found["0.8 to 0.9"] == found["0.9 to 1.0"] == (1, "50.0 %")
    assert sum(count for count, _ in found.values()) == 2


def test_page_escapes_what_it_shows() -> None:
    html = page(SET, [], chats(PATH, "standard", 2, ("planner", "executor")))
    assert "2 of 3 questions" in html
    assert "&lt;b&gt;turn 1&lt;/b&gt;" in html
    assert "&lt;think&gt;" in html
    assert "<b>turn 1" not in html
