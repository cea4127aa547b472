"""Requirements of the method on the retrieval, and a small run of the world recipe that is killed and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from tests.chaos.command import kill_short_run


@pytest.mark.slow  # every method's run is killed: only here are tools called
@pytest.mark.e2e(minutes=1)
def test_killed_run_with_tools_resumes_to_the_same_end(tmp_path: Path) -> None:
    undisturbed, killed = kill_short_run("react", tmp_path)
    assert (undisturbed["strikes"], len(killed["strikes"])) == ([], 3)
    rollouts = [
        rollout
        for file in sorted((Path(undisturbed["folder"]) / "run").glob("online/rollouts/*.jsonl"))
        for rollout in read_jsonl(file, Rollout)
    ]
    calls = [call for rollout in rollouts for turn in rollout.main.turns for call in turn.tool_calls]
    assert {"search", "calculator"} <= {call.tool for call in calls}
    assert all(call.evidence for call in calls if call.tool == "search" and not call.error)
