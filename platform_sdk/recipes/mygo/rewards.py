"""Mujica's named rewards: functions from a rollout to numbers in 0..1.

MyGO selects by the F1 of the planner's answer (r(τ), Mujica-MyGO, section 3.3); the warm-up by its exact match.
An answer that was never given scores 0.
"""

from __future__ import annotations

from platform_sdk.evaluation.answers import exact_match, f1_score
from platform_sdk.records import Rollout


def rewards(rollout: Rollout) -> dict[str, float]:
    """``em`` and ``f1`` under the dataset's own convention, and ``well_formed``: no turn broke the grammar."""
    question, answer = rollout.question, rollout.main.answer
    convention = question.dataset
    return {
        "em": exact_match(answer, question.answers, convention),  # type: ignore[arg-type]
        "f1": f1_score(answer, question.answers, convention).f1,  # type: ignore[arg-type]
        "well_formed": float(rollout.malformed_turns == 0),
    }
