"""Measures of an evaluation where a language model judges, asked over HTTP."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.config.judge import JudgeSpec
from platform_sdk.recipes.arena.measures import measures
from platform_sdk.recipes.arena.rewards import rewards
from platform_sdk.recipes.arena.settings import AgentSpec
from tests.evaluation.judging import Server, judge_server
from tests.recipes.arena.responses import rollout_of

__all__ = ["judge_server"]  # a fixture


def test_verdicts_and_unreadable_replies_are_metrics_of_their_own(server: Server, tmp_path: Path) -> None:
    server.replies = {"Bo Li": "Hard to say."}
    spec = AgentSpec()
    judge = JudgeSpec(url=server.url, model="judge-1", cache=str(tmp_path))
    rollouts = [rollout_of(f"<answer>{answer}</answer>", answer=answer) for answer in ("it was Ann Lee", "Bo Li", "Cy")]
    rollouts = [rollout.model_copy(update={"rewards": rewards(rollout, spec)}) for rollout in rollouts]
    found = measures(spec, judge, rollouts)
    assert [(values["em"], values["judge"], values["no_verdict"]) for values in found] == [
        (0, 1, 0),
        (0, 0, 1),
        (0, 0, 0),
    ]
    assert [values["arena_judge"] for values in found] == [1, 0, 0]
    assert "no_verdict" not in measures(spec, None, rollouts)[0]


def test_arena_scores_are_reported_beside_the_official_ones() -> None:
    # The paper's normaliser puts a space for the hyphen, HotpotQA's deletes it: "Ann-Lee" is "ann lee", or "annlee".
    spec = AgentSpec()
    rollout = rollout_of("<answer>Ann-Lee</answer>", answer="Ann-Lee")
    [found] = measures(spec, None, [rollout.model_copy(update={"rewards": rewards(rollout, spec)})])
    assert (found["em"], found["f1"], found["arena_em"], found["arena_f1"]) == (0, 0, 1, 1)
