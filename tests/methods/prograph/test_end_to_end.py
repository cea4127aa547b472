"""The world recipe, reduced: a run that is killed and resumed ends as one that is not, step progress included."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.record_files import read_log
from platform_sdk.tracking.updates import read_updates
from platform_sdk.training.online.preparation import PreparedGroup
from tests.chaos.command import kill_short_run


@pytest.mark.slow  # tests/extensions/test_toy.py shows the same of a credit that prepares
@pytest.mark.e2e(minutes=1)
def test_killed_run_resumes_to_the_same_end(tmp_path: Path) -> None:
    undisturbed, killed = kill_short_run("prograph", tmp_path)
    assert (undisturbed["strikes"], len(killed["strikes"])) == ([], 3)
    online = Path(undisturbed["folder"]) / "run/online"
    prepared = [
        group for file in sorted(online.glob("rollouts/prepared/*.jsonl")) for group in read_log(file, PreparedGroup)
    ]
    assert len(prepared) == 2 * 3
    steps = [turn for group in prepared for rollout in group.rollouts for turn in rollout.main.agent_turns]
    assert all("progress" in turn.rewards for turn in steps)
    costs = [update.preparation for update in read_updates(online)]
    assert sum(cost.requests for cost in costs if cost is not None) == sum(group.requests for group in prepared)
