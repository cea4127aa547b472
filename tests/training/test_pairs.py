"""A pair of models: each learns the dialogues of its own role, and what comes out is a pair again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from platform_sdk.config.training import TrainSpec
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Rollout
from platform_sdk.sampling.pairs import make_pair, models_of, policy_digest
from platform_sdk.training.examples import Example, examples_of
from platform_sdk.training.launch import TrainStep, launch_training
from platform_sdk.training.pairs import PairResult
from platform_sdk.training.run import train
from tests.training.test_steps import as_rollout

SPEC = TrainSpec(learning_rate=1e-2, minimum_learning_rate=1e-3, batch_size=7, micro_batch_tokens=30, device="cpu")


@pytest.fixture
def rollouts(dialogues: list[Example]) -> list[Rollout]:
    couples = zip(dialogues[::2], dialogues[1::2], strict=True)
    return [as_rollout(number, *couple) for number, couple in enumerate(couples)]


def test_each_model_learns_its_own_role(tiny_model: Path, rollouts: list[Rollout], tmp_path: Path) -> None:
    pair = make_pair(tmp_path / "run/policy", tiny_model, tiny_model)
    write_jsonl(tmp_path / "selected.jsonl", Rollout, rollouts)
    step = TrainStep(
        run_dir=tmp_path / "run",
        phase="warmup",
        model=str(pair),
        selected=tmp_path / "selected.jsonl",
        seed=3,
        spec=SPEC,
    )
    result = launch_training(step)
    assert isinstance(result, PairResult)
    examples = examples_of(rollouts)
    assert result.examples == len(examples) == 24
    for role in ("planner", "worker"):
        own = [example for example in examples if example.id.endswith("/planner") == (role == "planner")]
        alone = train(SPEC, own, tiny_model, tmp_path / role, seed=3, checkpoints=tmp_path / f"{role} checkpoints")
        assert result.roles[role].weights == alone.weights
    assert result.roles["planner"].weights != result.roles["worker"].weights
    assert result.weights == policy_digest(tmp_path / "run/warmup/model") == policy_digest(result.model)
    assert set(models_of(result.model)) == {"planner", "worker"}
    assert json.loads((tmp_path / "run/warmup/train.json").read_text())["weights"] == result.weights
    # A kill between the two models, or behind them, repeats nothing and ends the same.
    (tmp_path / "run/warmup/train.json").unlink()
    made = (tmp_path / "run/warmup/planner/model/model.safetensors").stat().st_mtime_ns
    assert launch_training(step) == result
    assert (tmp_path / "run/warmup/planner/model/model.safetensors").stat().st_mtime_ns == made
    # The next phase trains what this one left.
    onward = launch_training(step.model_copy(update={"phase": "iteration-01", "model": result.model}))
    assert onward.parents["model"] == result.weights
    assert onward.weights != result.weights


def test_role_without_trajectories_keeps_its_model(tiny_model: Path, rollouts: list[Rollout], tmp_path: Path) -> None:
    pair = make_pair(tmp_path / "run/policy", tiny_model, tiny_model)
    write_jsonl(tmp_path / "selected.jsonl", Rollout, [r.model_copy(update={"others": ()}) for r in rollouts])
    result = launch_training(
        TrainStep(
            run_dir=tmp_path / "run", phase="warmup", model=str(pair), selected=tmp_path / "selected.jsonl", seed=3,
            spec=SPEC,
        )
    )  # fmt: skip
    assert isinstance(result, PairResult)
    assert result.skipped is None
    assert result.roles["worker"].skipped == "no accepted trajectory"
    assert result.roles["worker"].weights == policy_digest(tiny_model)
