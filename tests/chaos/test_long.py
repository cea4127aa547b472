"""Kills at random moments; more of them with ``python -m tests.chaos``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.command import run_chaos

pytestmark = [pytest.mark.e2e(minutes=4), pytest.mark.slow]


PROGRAM = ("--kills", "6", "--others", "0", "--per-run", "6", "--seed", "29")
"""Kills of the run, of the step with the gateway, of everything, and of programs."""


@pytest.mark.parametrize(
    ("recipe", "options"), [("mygo", ("--kills", "10")), ("arena", ("--kills", "10")), ("program", PROGRAM)],
    ids=["mygo", "arena", "program"],
)  # fmt: skip
def test_runs_killed_anywhere_end_as_undisturbed_ones(recipe: str, options: tuple[str, ...], tmp_path: Path) -> None:
    run_chaos(recipe, tmp_path, *options, timeout=1800)
