"""A few kills at the worst moments of MyGO's run; tests/extensions kills an online run.

Many kills at random moments, also of ARENA's run, are in ``test_long.py`` and in ``python -m tests.chaos``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.e2e(minutes=2)


def test_run_killed_at_the_worst_moments_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    # A process of its own: it forks, and this one has threads.
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--recipe", "mygo", "--short", "--json", "--workdir", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    [told] = json.loads(done.stdout)
    undisturbed, killed = told["runs"]
    assert undisturbed["strikes"] == []
    # The command itself is killed twice at least; whether the follower is at work by itself at its moment, or the
    # command delivers the end, is up to the machine.
    assert len(killed["strikes"]) >= 2
    assert killed["starts"] >= 3
