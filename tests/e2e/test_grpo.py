"""GRPO on Mujica, from the start that MyGO has too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.recipe import load_recipe
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.tracking.updates import read_updates
from tests.e2e.runs import RECIPES, TINY_START, content, rollouts, run_here

pytestmark = pytest.mark.e2e(minutes=1)
TINY: dict[str, Any] = {
    **TINY_START,
    "sampling.temperature": 1.2,  # so that a group's rollouts differ
    "online.updates": 2,
    "online.questions": 4,
    "online.group": 4,
    "online.evaluate_every": 1,
}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("world", "world-grpo"),
        ("world", "world-grpo-workers"),
        ("world", "world-grpo-resampled"),
        ("2wiki-kg-qwen2.5-7b", "2wiki-kg-qwen2.5-7b-grpo"),
    ],
)
def test_grpo_recipes_share_all_settings_with_mygo_except_online(one: str, other: str) -> None:
    """The comparison is of what comes after the warm-up: all else is the same."""
    mygo, grpo = (load_recipe(RECIPES / f"{name}.yaml", []).parameters for name in (one, other))
    for name in mygo.keys() & grpo.keys():
        assert mygo[name] == grpo[name], name
    assert grpo.keys() - mygo.keys() == {"online"}


@pytest.mark.slow  # tests/training/online/test_groups.py shows the same of groups by themselves
def test_a_group_without_variance_is_sampled_again(tmp_path: Path) -> None:
    run = run_here("world-grpo-resampled.yaml", tmp_path / "run", {**TINY, "online.updates": 1, "online.group": 2})
    [update] = read_updates(run / "online")
    attempts: dict[str, list[float]] = {}
    for rollout in sorted(read_jsonl(run / "online/rollouts/0001.jsonl", Rollout), key=lambda r: r.attempt):
        attempts.setdefault(rollout.question.id, []).append(rollout.rewards["f1"])
    assert update.rollouts == sum(map(len, attempts.values())) > 4 * 2
    for rewards in attempts.values():
        waves = [rewards[start : start + 2] for start in range(0, len(rewards), 2)]
        assert all(len(set(wave)) == 1 for wave in waves[:-1])
        assert len(set(waves[-1])) == 2 or len(waves) == 3
    assert update.mean_reward == pytest.approx(sum(sum(rewards[:2]) for rewards in attempts.values()) / 8)


@pytest.mark.slow  # test_arena.py runs the same steps online, tests/training/online shows what they learn
def test_grpo_run_updates_and_evaluates_its_policy(tmp_path: Path) -> None:
    run = run_here("world-grpo.yaml", tmp_path / "run", TINY)
    warmed, trained = content(run, "warmup", "train")["weights"], content(run, "online", "train")["weights"]
    updates = read_updates(run / "online")
    assert [update.update for update in updates] == [1, 2]
    assert updates[0].weights == warmed
    assert len({warmed, updates[1].weights, trained}) == 3, "every update changed the policy"
    for update, after in zip(updates, (updates[1].weights, trained), strict=True):
        group = list(read_jsonl(run / f"online/rollouts/{update.update:04d}.jsonl", Rollout))
        assert {rollout.weights for rollout in group} == {update.weights}
        assert len(group) == update.rollouts == 16
        # Every dialogue is learned from, the workers' too, and of each the agent's tokens only.
        dialogues = [t for rollout in group for t in rollout.trajectories]
        assert update.trajectories == len(dialogues) > len(group)
        assert update.tokens_trained == sum(sum(t.agent_mask) for t in dialogues)
        assert update.mean_reward == pytest.approx(sum(r.rewards["f1"] for r in group) / 16)
        assert {rollout.weights for rollout in rollouts(run, f"eval-u{update.update:04d}")} == {after}
    # The same policy, questions and seeds: the evaluation between is the one at the end.
    last, final = (content(run, phase, "scores") for phase in ("eval-u0002", "eval-final"))
    assert last["per_question"] == final["per_question"]
