"""Steps that run at the same time: MLflow has the latest value of each tag, and ``hopforge verify`` agrees."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import mlflow
import pytest

from platform_sdk.tracking import finish_run, start_run, step_run
from platform_sdk.tracking.delivery import deliver
from platform_sdk.tracking.step import StepRun
from platform_sdk.tracking.verify import verify_run
from tests.tracking.small_run import RECIPE

FIRST, SECOND = "1" * 64, "2" * 64


def train(step: StepRun, digest: str) -> None:
    model = step.run_dir / step.name / "model"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_text(digest)
    step.seal(model)
    step.log_model(model, digest=digest)


@pytest.mark.parametrize("delivered", ["at the end", "after each event"])
def test_tag_that_parallel_steps_set_has_the_latest_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivered: str
) -> None:
    times = iter(range(1_700_000_000_000_000_000, 1_800_000_000_000_000_000, 1_000_000_000))
    monkeypatch.setattr("platform_sdk.tracking.journal.time.time_ns", lambda: next(times))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "recipe.json").write_text(json.dumps(RECIPE))
    start_run(run_dir, RECIPE, follow=False)

    def moment() -> None:
        if delivered == "after each event":
            deliver(run_dir)

    with ExitStack() as steps:
        planner = steps.enter_context(step_run(run_dir, "planner"))
        executor = steps.enter_context(step_run(run_dir, "executor"))
        planner.record_digests(questions="a")
        moment()
        executor.record_digests(questions="b")
        moment()
        planner.record_digests(questions="c")
        moment()
        executor.record_digests(questions="d", passages="e")
        planner.record_digests(passages="f")
        moment()
        train(executor, FIRST)
        moment()
        train(planner, SECOND)
    run_id = finish_run(run_dir, "FINISHED")
    tags = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}").get_run(run_id).data.tags
    assert (tags["questions"], tags["passages"], tags["weights"]) == ("d", "f", SECOND)
    assert [str(finding) for finding in verify_run(run_dir).findings] == []
