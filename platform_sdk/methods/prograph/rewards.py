"""Outcome reward of a rollout, as in Graph-R1 and ProGraph-R1.

R = -1 + format + accuracy, with format = min(1, 0.5 · well-formed turns), including the answer, and accuracy = F1 if
format is 1, else 0. So an answer without any search gets -0.5, right or wrong.
"""

from __future__ import annotations

from statistics import fmean

from platform_sdk.evaluation.answers import answer_rewards
from platform_sdk.records import Question, Rollout, Trajectory


def outcome(question: Question, trajectory: Trajectory) -> dict[str, float]:
    """Return the outcome reward of a dialogue as ``reward``, and its parts."""
    formed = sum(turn.malformed is None for turn in trajectory.agent_turns)
    format_reward = min(1.0, 0.5 * formed)
    scores = answer_rewards(trajectory.answer, question)
    accuracy = scores["f1"] if format_reward == 1.0 else 0.0
    return scores | {
        "format": format_reward,
        "accuracy": accuracy,
        "reward": -1.0 + format_reward + accuracy,
    }


def rewards(rollout: Rollout) -> dict[str, float]:
    """Return the outcome, and ``struct``, the mean structure reward of the turns that searched."""
    structure = [turn.rewards["struct"] for turn in rollout.main.agent_turns if "struct" in turn.rewards]
    return outcome(rollout.question, rollout.main) | {"struct": fmean(structure) if structure else 0.0}
