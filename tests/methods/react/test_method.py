"""Requirements of the method on the retrieval, and a small run of the world recipe that is killed and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from tests.chaos.command import kill_short_run
from tests.commands import succeed
from tests.e2e.runs import ROOT


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


@pytest.mark.slow  # two runs by the command, since only there each process opens the search of its own
def test_two_processes_that_search_words_have_the_rollouts_of_one(tmp_path: Path) -> None:
    """Words need no Milvus Lite, which admits one process."""
    sizes = ("dataset.world.eval_questions=4", "dataset.world.train_questions=4", "online.updates=0")
    found = []
    for processes in (1, 2):
        run_dir = tmp_path / f"{processes}"
        settings = [f"--set={one}" for one in (*sizes, f"sampling.engine.processes={processes}")]
        succeed("run", ROOT / "pipelines/react/world.yaml", "--workdir", run_dir, *settings)
        rollouts = read_jsonl(run_dir / "eval-start/rollouts.jsonl", Rollout)
        found.append(sorted(rollout.model_dump_json() for rollout in rollouts))
    assert len(found[0]) == 8, "sampled and greedy"
    assert any('"tool":"search"' in rollout for rollout in found[0])
    assert found[0] == found[1]
