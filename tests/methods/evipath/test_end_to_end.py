"""The world recipe, reduced: a run that is killed and resumed ends as one that is not, synthesis included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from platform_sdk.methods.evipath.records import Example
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout

ROOT = Path(__file__).parents[3]


@pytest.mark.slow  # tests/extensions/test_toy.py has a sampling step, test_synthesis.py synthesis alone
@pytest.mark.e2e(minutes=1)
def test_killed_run_resumes_to_the_same_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--recipe", "evipath", "--short", "--json", "--workdir", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    [evipath] = json.loads(done.stdout)
    undisturbed, killed = evipath["runs"]
    assert (undisturbed["strikes"], len(killed["strikes"])) == ([], 3)
    run = Path(undisturbed["folder"]) / "run"
    kept = list(read_jsonl(run / "synthesis/examples.jsonl", Example))
    learned = list(read_jsonl(run / "finetuning/selected.jsonl", Rollout))
    assert {rollout.question.id for rollout in learned} == {example.id for example in kept}
    assert "Synthesised reasoning paths" in (run / "report.html").read_text()
