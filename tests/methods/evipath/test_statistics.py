"""The statistics of a small set, computed by hand."""

from __future__ import annotations

from platform_sdk.methods.evipath.dialogues import chats
from platform_sdk.methods.evipath.path_statistics import (
    acceptance,
    parallelism,
    reasons,
    similarities,
    statistics,
    thresholds,
)
from tests.methods.evipath.paths import FIRST, PATH, SECOND, with_sub_question

REJECTED = PATH.model_copy(update={"id": "r", "hops": 2, "rejected": "leak", "detail": "<b>turn 1</b>"})
WIDE = PATH.model_copy(update={"id": "w", "steps": (PATH.steps[0].model_copy(update={"asked": (FIRST, SECOND)}),)})
SET = [PATH, REJECTED, WIDE]


def test_acceptance_is_counted_by_a_key() -> None:
    assert acceptance(SET, lambda example: example.hops) == [(2, 1, 0, "0.0 %"), (None, 2, 2, "100.0 %")]


def test_reasons_come_with_a_case() -> None:
    assert reasons(SET) == [("leak", 1, "33.3 %", "<b>turn 1</b>")]


def test_parallelism_counts_sub_questions_per_step() -> None:
    assert parallelism([PATH, WIDE]) == [(1, 2, "66.7 %"), (2, 1, "33.3 %")]


def test_best_similarities_by_tenths() -> None:
    found = {row[0]: row[1:] for row in similarities([PATH])}  # FIRST's best is 0.8, SECOND's 0.9
    assert found["0.8 to 0.9"] == found["0.9 to 1.0"] == (1, "50.0 %")
    assert sum(count for count, _ in found.values()) == 2


def test_threshold_table_by_hand() -> None:
    # FIRST selected gold 0 of (0.8, 0.3), SECOND gold 1 of (0.4, 0.9).
    found = {row[0]: row[1:] for row in thresholds([PATH])}
    assert found[0.5] == (2, "0.0 %", "100.0 %")
    assert found[0.8] == (2, "50.0 %", "100.0 %")  # 0.8 is not above 0.8, but the best
    changed = with_sub_question(PATH, 0, similarities=(0.7, 0.75))
    # Above 0.6 are both, of which one was selected; above 0.7 is the wrong one.
    assert [row[3] for row in thresholds([changed])] == ["50.0 %"] * 5


def test_statistics_of_a_set() -> None:
    found = statistics(SET, [], chats(PATH, "standard", 2, ("planner", "executor")))
    assert found.summary.startswith("2 of 3 questions")
    assert {dialogue.title for dialogue in found.dialogues} == {"planner, q", "executor, q/0.0", "executor, q/1.0"}
    assert all(len(row) == len(table.head) for table in found.tables for row in table.rows)
