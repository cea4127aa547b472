"""Named rewards of a planner's rollouts, numbers in 0..1, and what an evaluation reports beside them.

MyGO selects by the F1 of the planner's answer (r(τ), Mujica-MyGO, section 3.3); the warm-up by its exact match.
An answer that was never given scores 0.
"""

from __future__ import annotations

from typing import Literal

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


def measures(medium: Literal["text", "kg"], rollout: Rollout) -> dict[str, float]:
    """Return what an evaluation reports of a rollout: the answer's scores, and how it came about."""
    question = rollout.question
    best = f1_score(rollout.main.answer, question.answers, question.dataset)  # type: ignore[arg-type]
    found = {
        "em": rollout.rewards["em"],
        "f1": best.f1,
        "prec": best.precision,
        "recall": best.recall,
        "answered": float(rollout.outcome == "answered"),
        "well_formed": rollout.rewards["well_formed"],
        "turns": float(sum(turn.speaker == "agent" for turn in rollout.main.turns)),
        "searches": float(sum(len(turn.queries) for turn in rollout.main.turns)),
        "tokens": float(sum(sum(t.agent_mask) for t in rollout.trajectories)),
    }
    gold = {triple.text for triple in question.gold_triples} if medium == "kg" else set(question.gold_passages)
    if gold:
        seen = {item.text if medium == "kg" else item.title for t in rollout.trajectories for item in t.evidence}
        found["evidence_recall"] = len(gold & seen) / len(gold)
    return found
