"""Figures of a cluster's run, from a real MLflow server to which the run's journals were delivered."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.recipe import load_recipe
from platform_sdk.diagnosis.explain import explain
from platform_sdk.diagnosis.local import collect as collect_here
from platform_sdk.errors import UserError
from platform_sdk.kubeflow.remote.curves import read_curves
from platform_sdk.kubeflow.remote.facts import collect
from platform_sdk.tracking import finish_run, server, start_run, step_run
from platform_sdk.tracking.following import following
from platform_sdk.tracking.updates import Update, append_update
from tests.kubeflow.remote.cluster import Cluster
from tests.tracking.mlflow_process import plain_mlflow

pytestmark = pytest.mark.e2e(minutes=1)
RECIPE = Path(__file__).parents[3] / "pipelines/arena/world.yaml"
UPDATE: dict[str, Any] = {
    "rewards": {"em": 0.25}, "rollouts": 6, "trajectories": 6, "tokens_sampled": 90, "tokens_trained": 60,
    "truncated": 0, "dropped": 0, "loss": 0.5, "kl": 0.01, "clip_fraction": 0.0, "statistics": {"entropy": 0.7},
    "learning_rate": 1e-4, "grad_norm": 0.3, "sampling_seconds": 1.0, "training_seconds": 1.0, "sync_seconds": 0.1,
    "weights": "0" * 64,
}  # fmt: skip
WELL = "6e0e4358-8920-4486-913f-385f0269ca67"
"""Id of the run whose figures are well."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TIMEOUT", 60.0)  # a busy machine


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with plain_mlflow(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


def record(
    run_dir: Path, *, updates: Sequence[tuple[float, float]] = (), losses: Sequence[float] = (),
    selected: int | None = None,
) -> None:  # fmt: skip
    """Run steps that write the files of a training and of a selection, and deliver them as the steps of a run do.

    Args:
        updates: share of groups with equal rewards and mean reward of each update of ``online``.
        losses: loss of each optimizer step of ``warmup``.
        selected: number of rollouts of ``iteration-01`` that were accepted, of eight.
    """
    for phase in ("online", "warmup", "iteration-01"):
        (run_dir / phase).mkdir(parents=True)
    start_run(run_dir, load_recipe(RECIPE, (), {}).resolved(), follow=False)
    for number, (equal, reward) in enumerate(updates, start=1):
        append_update(run_dir / "online", Update(update=number, zero_variance=equal, mean_reward=reward, **UPDATE))
    with (run_dir / "warmup/steps.jsonl").open("w") as steps:
        steps.writelines(json.dumps({"step": n, "loss": loss}) + "\n" for n, loss in enumerate(losses, start=1))
    figures = {"phase": "iteration-01", "iteration": 1, "rollouts": 8, "selected": selected, "well_formed": 0.5}
    for name, file, axis, phase in (
        ("online-online", "updates.jsonl", "update", "online"), ("train-warmup", "steps.jsonl", "step", "warmup")
    ):  # fmt: skip
        path = run_dir / phase / file
        if path.exists():
            with step_run(run_dir, name) as step, following(step, path, axis=axis, phase=phase):
                pass
    if selected is not None:
        path = run_dir / "iteration-01/figures.json"
        path.write_text(json.dumps({**figures, "threshold": 0.5}))
        with step_run(run_dir, "score-iteration-01") as step:
            step.log_figures(path)
    finish_run(run_dir, "FINISHED")


@pytest.mark.parametrize(
    ("written", "rule", "where"),
    [
        ({"updates": [(1.0, 0.25), (1.0, 0.5)]}, "equal_rewards", "online"),
        ({"losses": [0.5, math.nan, math.nan]}, "loss_not_finite", "warmup"),
        ({"losses": [0.5, math.inf]}, "loss_not_finite", "warmup"),
        ({"selected": 0}, "nothing_accepted", "iteration-01"),
    ],
)
def test_worthless_run_on_a_cluster_is_explained_by_its_figures_in_mlflow(
    mlflow: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    written: dict[str, Any], rule: str, where: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow)
    run_dir = tmp_path / f"small-{cluster.run.run_id}"
    record(run_dir, **written)
    for step in cluster.run.step_names:
        cluster.execution.step(step)
    cluster.execution.state("SUCCEEDED")
    facts, notes = collect(cluster.server, cluster.run, cluster.jobs)
    assert notes == []
    here = collect_here(run_dir)
    assert (facts.training, facts.selections) == (here.training, here.selections)
    [found] = explain(facts).findings
    assert (found.rule, found.kind, found.where) == (rule, "worthless", where)
    assert "in MLflow" in found.evidence[0].object
    assert explain(facts.model_copy(update={"training": (), "selections": ()})).well


def test_figures_of_a_well_run_have_no_findings(mlflow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow)
    record(tmp_path / f"small-{WELL}", updates=[(1.0, 0.0), (0.5, 0.25)], losses=[0.5, 0.4], selected=3)
    training, selections = read_curves(WELL)
    assert [(point.phase, point.number, point.equal_groups) for point in training] == [
        ("online", 2, 0.5), ("warmup", 2, None)
    ]  # fmt: skip
    assert [(one.phase, one.accepted, one.rollouts) for one in selections] == [("iteration-01", 3, 8)]


def test_run_that_mlflow_does_not_have_is_reported(mlflow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow)
    with pytest.raises(UserError, match=r"has no run 0000; check MLFLOW_WORKSPACE"):
        read_curves("0000")


def test_figures_without_a_server_are_named_as_not_seen(cluster: Cluster) -> None:
    cluster.execution.step("begin")
    _, notes = collect(cluster.server, cluster.run, cluster.jobs)
    assert [note for note in notes if "figures" in note and "MLFLOW_TRACKING_URI names no MLflow server" in note]
