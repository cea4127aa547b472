"""A training killed with SIGKILL at any moment and started again ends with the very same weights."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from platform_sdk.sampling.models import weights_digest
from platform_sdk.training.examples import Example
from tests.e2e.runs import environment

SCRIPT = Path(__file__).with_name("killed_runs.py")


@pytest.mark.slow  # tests/chaos/test_short.py kills the training of a run
@pytest.mark.parametrize("selection", ["full, all", "lora"])
def test_killed_runs_end_as_the_undisturbed_one(
    tiny_model: Path, dialogues: list[Example], tmp_path: Path, selection: str
) -> None:
    finished = subprocess.run(
        [sys.executable, str(SCRIPT), str(tiny_model), str(tmp_path), selection],
        input=json.dumps([dataclasses.astuple(example) for example in dialogues]),
        env=environment(),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr[-3000:]
    results = json.loads(finished.stdout.splitlines()[-1])  # DeepSpeed, where it is installed, says more
    undisturbed = results.pop("undisturbed")
    assert undisturbed["status"] == 0, finished.stderr[-3000:]
    assert len(undisturbed["losses"]) == 8
    assert undisturbed["weights"] != weights_digest(tiny_model)
    for moment, result in results.items():
        assert set(result["killed"]) == {signal.SIGKILL}, moment
        assert result["status"] == 0, (moment, finished.stderr[-3000:])
        assert result["weights"] == undisturbed["weights"], moment
        assert result["losses"] == undisturbed["losses"], moment
        assert result["left"] == ["model"], moment
