"""Damage to one file of every kind of a run, in a way and at a moment drawn from a seed.

The whole table, every damage to every kind of file at every moment, is ``python -m tests.e2e.damage``; what a row is
stands there.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.e2e.runs import ROOT, environment

pytestmark = [pytest.mark.e2e(minutes=5), pytest.mark.slow]


def test_damaged_file_leads_to_equal_results_or_one_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.damage", "--sample", "0", "--json"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr[-4000:]
    rows = json.loads(done.stdout)
    assert [row for row in rows if not row["good"]] == []
    assert {row["recipe"] for row in rows} == {"arena", "mygo"}
    assert len(rows) > 50
