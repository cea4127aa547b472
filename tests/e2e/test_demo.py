"""Promises of the README about the embedded default."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.runs import content, run_here

pytestmark = pytest.mark.e2e(minutes=4)


@pytest.mark.slow
def test_demo_recipe_raises_exact_match(tmp_path: Path) -> None:
    """The shipped recipe as it is: exact match on unseen questions rises beyond the 95 % intervals."""
    run = run_here("world.yaml", tmp_path / "run", {})
    start, final = (content(run, phase, "scores") for phase in ("eval-start", "eval-final"))
    assert start["n"] == final["n"] == 200
    assert list(start["per_question"]) == list(final["per_question"])
    assert final["metrics"]["em"]["low"] > start["metrics"]["em"]["high"], (start["metrics"], final["metrics"])
