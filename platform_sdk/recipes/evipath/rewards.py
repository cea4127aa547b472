"""What a rollout is worth, and what an evaluation reports of it."""

from __future__ import annotations

from platform_sdk.evaluation.answers import exact_match, f1_score
from platform_sdk.recipes.evipath.records import Medium
from platform_sdk.records import Rollout


def rewards(rollout: Rollout) -> dict[str, float]:
    """Return exact match and F1 under the dataset's own convention, and whether no turn broke the grammar."""
    question, answer = rollout.question, rollout.main.answer
    return {
        "em": exact_match(answer, question.answers, question.dataset),  # type: ignore[arg-type]
        "f1": f1_score(answer, question.answers, question.dataset).f1,  # type: ignore[arg-type]
        "well_formed": float(rollout.malformed_turns == 0),
    }


def measures(medium: Medium, rollout: Rollout) -> dict[str, float]:
    """Return the metrics of an evaluation: scores, turns, and the share of gold evidence that was found."""
    question = rollout.question
    found = {
        **rollout.rewards,
        "answered": float(rollout.outcome == "answered"),
        "turns": float(sum(turn.speaker == "agent" for turn in rollout.main.turns)),
        "searches": float(sum(len(turn.queries) for turn in rollout.main.turns)),
        "tokens": float(sum(sum(t.agent_mask) for t in rollout.trajectories)),
    }
    gold = {triple.text for triple in question.gold_triples} if medium == "kg" else set(question.gold_passages)
    if gold:
        seen = {item.text if medium == "kg" else item.title for t in rollout.trajectories for item in t.evidence}
        found["evidence_recall"] = len(gold & seen) / len(gold)
    return found
