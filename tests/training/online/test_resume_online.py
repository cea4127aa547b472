"""An online run killed with SIGKILL at any moment and started again ends with the same rollouts and weights."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from platform_sdk.sampling.models import weights_digest
from tests.e2e.runs import environment
from tests.sampling.tiny_models import save_model

SCRIPT = Path(__file__).with_name("killed_online.py")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


CHANGES = ("on policy, all", "prepared off policy", "iterations", "lora")


@pytest.mark.slow  # tests/extensions/test_toy.py kills an online run with a credit that prepares
@pytest.mark.parametrize("change", CHANGES)
def test_killed_runs_end_as_the_undisturbed_one(model: Path, tmp_path: Path, change: str) -> None:
    finished = subprocess.run(
        [sys.executable, str(SCRIPT), str(model), str(tmp_path), change],
        env=environment(),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr[-3000:]
    results = json.loads(finished.stdout.splitlines()[-1])  # DeepSpeed, where it is installed, says more
    undisturbed = results.pop("undisturbed")
    assert undisturbed["status"] == 0, finished.stderr[-3000:]
    assert undisturbed["count"] >= 4 * 2 * 3
    assert [line["update"] for line in undisturbed["updates"]] == [1, 2, 3, 4]
    assert len({line["weights"] for line in undisturbed["updates"]}) == (3 if change.endswith("off policy") else 4)
    assert undisturbed["weights"] != weights_digest(model)
    assert len(undisturbed["prepared"]) == (4 * 2 if "prepared" in change else 0)
    for moment, result in results.items():
        assert set(result.pop("killed")) == {signal.SIGKILL}, moment
        assert result["status"] == 0, (moment, finished.stderr[-3000:])
        for what, expected in undisturbed.items():
            if what != "killed":
                assert result[what] == expected, (moment, what)
    assert undisturbed["left"] == ["model", "rollouts", "train.json", "updates.jsonl"]
    assert undisturbed["stale"] == []
