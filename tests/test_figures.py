"""Tables of scores in README and docs: they stand between markers, equal the record, and are rewritten in place."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HOME = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def figures() -> Iterator[ModuleType]:
    specification = importlib.util.spec_from_file_location("readme_figures", HOME / "docs/figures.py")
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
    sys.path.insert(0, str(HOME / "docs"))
    try:
        specification.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(HOME / "docs"))


@pytest.fixture(scope="module")
def records(figures: ModuleType) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(figures.RECORD.read_text())
    return found


def test_tables_of_all_pages_equal_the_record_and_stand_between_markers(
    figures: ModuleType, records: dict[str, Any]
) -> None:
    assert figures.check(records) == []
    marked = [name for page in figures.PAGES for name in figures.MARKER.findall(page.read_text())]
    assert set(marked) == set(figures.FIGURES)
    assert records.keys() == figures.FIGURES.keys() - {"scores", "world-grpo-cost"}
    assert figures.SUMMARY.studies[:2] == ["world-mygo", "world-grpo"]
    assert figures.FIGURES["world-grpo-cost"].studies == ["world-grpo"]


def test_altered_score_is_named_with_its_page(
    figures: ModuleType, records: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    text = (HOME / "README.md").read_text()
    shown = figures.SUMMARY.render(records)[2].split(" | ")[5]  # the first row's sampled score after training
    page.write_text(text.replace(f"| {shown} |", "| 51.7 (42.9 to 60.4) |"))
    assert page.read_text() != text
    monkeypatch.setattr(figures, "PAGES", (page,))
    assert figures.check(records) == [
        f"{page}: table scores differs from docs/figures.json; run python docs/figures.py --render"
    ]


def test_score_outside_markers_is_named(
    figures: ModuleType, records: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(figures, "PAGES", (page,))
    page.write_text("| method | EM |\n|---|---:|\n| a | 51.7 |\n\n| name | what EM is |\n|---|---|\n| a | b |\n")
    fault = "a table of scores, or a score that is in no table"
    assert figures.check(records) == [f"{page}: {fault}: | method | EM |; add it to docs/figures.py"]
    mean, low, _, high = figures.SUMMARY.render(records)[2].split(" | ")[5].replace("(", "").replace(")", "").split()
    page.write_text(f"MyGO ends at {mean} ({low} to\n{high}), and not at {mean} ({low}\nto 99.9).\n")
    assert figures.check(records) == [f"{page}: {fault}: {mean} ({low} to 99.9); add it to docs/figures.py"]
    difference, low, high = records["world-grpo"]["cells"]["MyGO · 307"]["differences"]["em"]
    page.write_text(f"It ends {difference} points (−{high} to −{low}) below.\n")
    assert figures.check(records) == []


def test_page_is_rewritten_between_markers_alone(figures: ModuleType) -> None:
    text = "Before\n<!-- figures: t -->\n| c | n |\n|---|---|\n| a | 1 |\n<!-- end of figures -->\nAfter\n"
    tables = {"t": ["| c | n |", "|---|---|", "| a | 3 |"]}
    assert figures.rendered(text, tables) == text.replace("| a | 1 |", "| a | 3 |")
    assert figures.rendered("| a | 1 |\n", tables) == "| a | 1 |\n"
    with pytest.raises(ValueError, match="figures: u --> names no table; known are t"):
        figures.rendered(text.replace("figures: t", "figures: u"), tables)
    with pytest.raises(ValueError, match="there is no <!-- end of figures --> after <!-- figures: t -->"):
        figures.rendered(text.replace(figures.END, ""), tables)


def test_study_table_shows_measured_intervals_and_marks_one_seed(figures: ModuleType) -> None:
    def row(level: str, values: list[float], paired: dict[str, float] | None) -> dict[str, Any]:
        metric = {"n": 200, "values": values, "mean": 0.5, "low": 0.4, "high": 0.6, "paired": paired}
        calls = {"n": 200, "values": [2.0], "mean": 2.0, "paired": None}
        metrics = {"em": metric, "em_greedy": metric, "tool_calls": calls}
        runs = {str(seed): "run" for seed in range(len(values))}
        return {"place": [level], "runs": runs, "metrics": metrics, "cost": None}

    paired = {"difference": 0.1, "low": -0.05, "high": 0.25}
    rows = [row("search and calculator", [0.5, 0.5], None), row("search", [0.6, 0.4], paired)]
    later = {"place": ["untrained"], "runs": {}, "metrics": {}}
    table = figures.FIGURES["world-react"]
    record = table.record([{"rows": [*rows, later], "counts": ["tool_calls"]}])
    measured = "60.0, 40.0 | 50.0 (40.0 to 60.0) | +10.0 (−5.0 to +25.0)"
    shown = table.render({"world-react": record})
    assert shown[-1] == f"| search | {measured} | {measured} | 2 |"
    kept = {"questions": 200, "cells": {"search": {"em": {"1": 50.0}, "em_greedy": {"1": 40.0}},
            "search and calculator": {"em": {"0": 10.0, "1": 30.0}, "em_greedy": {"0": 10.0, "1": 30.0}}}}  # fmt: skip
    line = table.render({"world-react": kept})[2]
    assert line.startswith("| search | 50.0 | 50.0 (43.0 to 57.0, one seed) | +20.0 (one seed) |")


def test_costs_are_shown_up_to_the_baselines_score(figures: ModuleType) -> None:
    costs = {"score": 30.1, "rollouts": 694.2, "trajectories": 1242, "tokens_sampled": 9, "tokens_trained": 8}
    cells = {"MyGO · 211": {"cost": costs | {"optimizer_steps": 15}}, "GRPO · 211": {"cost": {"score": 30.1}}, "x": {}}
    lines = figures.FIGURES["world-grpo-cost"].render({"world-grpo": {"cells": cells}})
    assert lines[2:] == [
        "| MyGO | 211 | 30.1 | 694 | 1,242 | 9 | 8 | 15 |",
        "| GRPO | 211 | 30.1 |" + " not reached |" * 5,
    ]


def test_rows_of_recall_name_their_commands(figures: ModuleType) -> None:
    found = [{"n": 80 + place, "recall": {"2": 0.5, "5": 0.625, "10": 0.75}} for place in range(3)]
    rows = figures.RECALL.record(found)["rows"]
    assert rows[2].startswith("| `hopforge recall --recipe pipelines/mygo/hotpotqa-smollm2.yaml -k 2,5,10")
    assert rows[4].endswith("| 5,976 passages | 82 | 50.0 | 62.5 | 75.0 |")
