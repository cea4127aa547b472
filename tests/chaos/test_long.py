"""Kills at random moments; more of them with ``python -m tests.chaos``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.e2e(minutes=4), pytest.mark.slow]


PROGRAM = ("--kills", "6", "--others", "0", "--per-run", "6", "--seed", "29")
"""Kills of the run, of the step with the gateway, of everything, and of programs."""


@pytest.mark.parametrize(
    ("recipe", "options"), [("mygo", ("--kills", "10")), ("arena", ("--kills", "10")), ("program", PROGRAM)],
    ids=["mygo", "arena", "program"],
)  # fmt: skip
def test_runs_killed_anywhere_end_as_undisturbed_ones(recipe: str, options: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--recipe", recipe, *options, "--workdir", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
