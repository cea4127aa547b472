"""``python -m tests.chaos`` in a separate process: it forks, and the tests' process has threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.runs import ROOT, environment


def run_chaos(recipe: str, workdir: Path, *options: str, timeout: float = 600) -> str:
    """Kill runs of a recipe, which must end as undisturbed ones; return the output."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--recipe", recipe, *options, "--workdir", str(workdir)],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-6000:]
    return done.stdout


def kill_short_run(recipe: str, workdir: Path, timeout: float = 600) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the records of an undisturbed run and of one killed at its worst moments."""
    [found] = json.loads(run_chaos(recipe, workdir, "--short", "--json", timeout=timeout))
    undisturbed, killed = found["runs"]
    return undisturbed, killed
