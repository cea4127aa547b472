"""The reward names of every method's agent are the names of its rollouts' rewards."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.recipe import load_recipe
from platform_sdk.methods.faults import errors
from platform_sdk.methods.method import load_method
from platform_sdk.records import Question, Rollout, Trajectory, Turn
from tests.methods.arena.test_rewards import chatty

HOME = Path(__file__).parents[2]
CHATTY = f"{chatty.__module__}:{chatty.__name__}"


def rollout() -> Rollout:
    turn = Turn(speaker="agent", text="Ann", start=0, end=1)
    main = Trajectory(
        role="agent", id="agent", token_ids=(1,), agent_mask=(1,), logprobs=(0.0,), turns=(turn,), answer="Ann"
    )
    question = Question(id="q", dataset="world", text="Who?", answers=("Ann",))
    return Rollout(question=question, attempt=0, seed=0, main=main, outcome="answered", weights="w", corpus="c")


class Run:
    """The part of a run's context that rewards read."""

    def __init__(self, agent: object) -> None:
        self.agent, self.environment = agent, "world-text"


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("mygo/world-grpo", []),
        ("mygo/world-grpo", [f"agent.reward={CHATTY}"]),
        ("react/world", []),
        ("program/world", []),
        ("program/world", [f"agent.reward={CHATTY}"]),
        ("prograph/world", []),
        ("arena/world", []),
        ("arena/world", [f"agent.rewards.extra={{short: {{function: '{CHATTY}'}}}}"]),
    ],
)
def test_reward_names_are_the_names_of_rewards(recipe: str, changes: list[str]) -> None:
    loaded = load_recipe(HOME / f"pipelines/{recipe}.yaml", changes)
    agent = loaded.structs["agent"]
    method, run = load_method(loaded.pipeline.document.method), Run(agent)
    found = method.rewards(run, rollout())  # type: ignore[arg-type]
    assert found is not None
    assert sorted(found) == sorted(agent.reward_names)  # type: ignore[attr-defined]
    own = dict.fromkeys({"own", "short"} & set(found), CHATTY)
    assert method.reward_sources(run).functions == own  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("recipe", "change", "message"),
    [
        ("mygo/world-grpo", "online.reward=em1", "online.reward: rollouts have no reward em1; did you mean em"),
        ("mygo/world-grpo", "online.reward=own", "online.reward: is own, and there is none: name it in agent.reward"),
        ("arena/world", "online.credit.mute_ties_of=won", "online.credit.mute_ties_of: rollouts have no reward won"),
        ("prograph/world", "agent.credit.mute_ties_of=won", "agent.credit.mute_ties_of: rollouts have no reward won"),
        (
            "react/world",
            "online.credit={type: gdpo, weights: {f1: 1, won: 1}}",
            "online.credit.weights.won: rollouts have no reward won",
        ),
    ],
)
def test_unknown_reward_is_an_error(recipe: str, change: str, message: str) -> None:
    [problem] = errors(load_recipe(HOME / f"pipelines/{recipe}.yaml", [change]))
    assert message in str(problem)


def test_own_reward_that_the_agent_names_is_known() -> None:
    changes = ["online.reward=own", f"agent.reward={CHATTY}"]
    assert errors(load_recipe(HOME / "pipelines/mygo/world-grpo.yaml", changes)) == []
