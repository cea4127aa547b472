"""The pages' tables of figures: rows are rewritten in place, and every row names a command of the script."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HOME = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    specification = importlib.util.spec_from_file_location("readme_figures", HOME / "docs/figures.py")
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_row_is_rewritten_in_place(figures: ModuleType) -> None:
    text = (
        "Before\n<!-- figures: t -->\n| c | n |\n|---|---|\n| `a` | 1 |\n| `b` | 2 |\n<!-- end of figures -->\nAfter\n"
    )
    assert figures.rewritten(text, "t", "`a`", "| `a` | 3 |") == text.replace("| `a` | 1 |", "| `a` | 3 |")
    added = figures.rewritten(text, "t", "`c`", "| `c` | 4 |")
    assert added == text.replace("| `b` | 2 |\n", "| `b` | 2 |\n| `c` | 4 |\n")
    assert figures.rewritten(text, "u", "`a`", "") == text


def test_a_row_shows_sampled_and_greedy_scores_before_and_after(figures: ModuleType) -> None:
    def scores(phase: str, em: float, greedy: float) -> dict[str, object]:
        metrics = {
            name: {"value": value, "low": value - 0.05, "high": value + 0.05}
            for name, value in (("em", em), ("em_greedy", greedy))
        }
        return {"phase": phase, "n": 200, "metrics": metrics}

    found = {"scores": [scores("eval-start", 0.245, 0.38), scores("eval-final", 0.5, 0.505)]}
    figure = figures.Scores("x", "a note", ("R.yaml",))
    assert figure.row(found) == [
        "`hopforge run R.yaml`", "a note", "200", "24.5 (19.5 to 29.5)", "50.0 (45.0 to 55.0)", "38.0 (33.0 to 43.0)",
        "50.5 (45.5 to 55.5)",
    ]  # fmt: skip


def test_every_row_of_a_page_is_of_a_command_that_the_script_knows(figures: ModuleType) -> None:
    known = {f"| {figures._shell(figure.command())} |" for figure in figures.FIGURES}
    for page in figures.PAGES:
        rows = [line for line in page.read_text().splitlines() if line.startswith("| `hopforge r")]
        measured = [row for row in rows if row.count("|") > 3]
        assert measured, page
        assert not [row for row in measured if not any(row.startswith(command) for command in known)], page
