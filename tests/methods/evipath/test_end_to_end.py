"""The world recipe, reduced: a run that is killed and resumed ends as one that is not, synthesis included."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.methods.evipath.records import Example
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from tests.chaos.command import kill_short_run


@pytest.mark.slow  # tests/extensions/test_toy.py has a sampling step, test_synthesis.py synthesis alone
@pytest.mark.e2e(minutes=1)
def test_killed_run_resumes_to_the_same_end(tmp_path: Path) -> None:
    undisturbed, killed = kill_short_run("evipath", tmp_path)
    assert (undisturbed["strikes"], len(killed["strikes"])) == ([], 3)
    run = Path(undisturbed["folder"]) / "run"
    kept = list(read_jsonl(run / "synthesis/examples.jsonl", Example))
    learned = list(read_jsonl(run / "finetuning/selected.jsonl", Rollout))
    assert {rollout.question.id for rollout in learned} == {example.id for example in kept}
    assert "Synthesised reasoning paths" in (run / "report.html").read_text()
