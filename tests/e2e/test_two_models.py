"""One model plans and another works: each speaks for its role, learns its role, and both continue together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from platform_sdk.records import Trajectory
from platform_sdk.sampling.models import load_model
from platform_sdk.sampling.pairs import models_of, policy_digest
from tests.e2e.runs import TINY_MYGO, content, rollouts, run_here

# tests/training/test_pairs.py shows the same of the training, tests/sampling/test_pairs.py of the sampling
pytestmark = [pytest.mark.e2e, pytest.mark.slow]
TINY = {**TINY_MYGO, "worker_model": "hopforge:world-base"}


def test_a_pair_is_trained_and_sampled_role_by_role(tmp_path: Path) -> None:
    run = run_here("world-text.yaml", tmp_path / "run", TINY)
    warmed = content(run, "warmup", "train")
    planner, worker = (warmed["roles"][role] for role in ("planner", "worker"))
    assert planner["parents"]["model"] == worker["parents"]["model"], "they began as copies of one model"
    assert planner["weights"] != worker["weights"]
    selected = rollouts(run, "warmup", "selected")
    assert (planner["examples"], worker["examples"]) == (len(selected), sum(len(r.others) for r in selected))
    assert policy_digest(run / "warmup/model") == warmed["weights"]
    sampled = rollouts(run, "iteration-01")
    assert {r.weights for r in sampled} == {warmed["weights"]}
    trajectories = [t for r in sampled for t in r.trajectories]
    for role, path in models_of(run / "warmup/model").items():
        own = next(t for t in trajectories if t.role == role)
        other = next(t for t in trajectories if t.role != role)
        assert _distance(path, own) < 1e-4, f"the {role} speaks from its own model"
        assert _distance(path, other) > 1e-3
    assert {r.weights for r in rollouts(run, "eval-final")} == {content(run, "iteration-01", "train")["weights"]}
    # Both models are in MLflow, as they are in the run.
    stored = {path.parent.name for path in (tmp_path / "mlartifacts").rglob("model.safetensors")}
    assert stored == {"planner", "worker"}
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")}
    run_here("world-text.yaml", run, TINY)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")} == before


def _distance(model: Path, trajectory: Trajectory) -> float:
    """The greatest difference between the recorded log-probabilities and those of a model."""
    tokens = torch.tensor([trajectory.token_ids])
    with torch.inference_mode():
        logprobs = load_model(model)(tokens).logits[0, :-1].float().log_softmax(-1)
    found = logprobs.gather(1, tokens[0, 1:, None])[:, 0]
    spoken = torch.tensor(trajectory.agent_mask[1:], dtype=torch.bool)
    return float((found - torch.tensor(trajectory.logprobs[1:]))[spoken].abs().max())
