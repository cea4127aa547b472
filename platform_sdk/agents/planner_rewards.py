"""Named rewards of a planner's rollouts, numbers in 0..1, and the additional metrics of an evaluation.

MyGO selects by the F1 of the planner's answer (r(τ), Mujica-MyGO, section 3.3); the warm-up by its exact match.
An answer that was never given scores 0.
"""

from __future__ import annotations

from platform_sdk.agents.planner_messages import Medium
from platform_sdk.evaluation.answers import answer_rewards, f1_score
from platform_sdk.records import Evidence, Question, Rollout, Trajectory


def rewards(rollout: Rollout) -> dict[str, float]:
    """``em`` and ``f1`` under the dataset's own convention, and ``well_formed``: no turn broke the grammar."""
    well_formed = float(rollout.malformed_turns == 0)
    return answer_rewards(rollout.main.answer, rollout.question) | {"well_formed": well_formed}


def measures(medium: Medium, rollout: Rollout) -> dict[str, float]:
    """Return an evaluation's measures of a rollout: the answer's scores, and counts of its steps."""
    question = rollout.question
    best = f1_score(rollout.main.answer, question.answers, question.dataset)
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
    gold = _gold(medium, question)
    if gold:
        seen = {_named(medium, item) for t in rollout.trajectories for item in t.evidence}
        found["evidence_recall"] = len(gold & seen) / len(gold)
    return found


def worker_reward(medium: Medium, rollout: Rollout, worker: Trajectory) -> float | None:
    """Return the own reward of a worker's dialogue; None if its evidence contains no gold evidence.

    Of the evidence that the worker chose, the share that is gold; in a graph the mean of that and of whether the
    worker's sentence names an entity that a gold triple it was shown leads to.
    """
    gold = _gold(medium, rollout.question)
    shown = [item for item in worker.evidence if _named(medium, item) in gold]
    if not shown:
        return None
    chosen = [_named(medium, worker.evidence[index]) in gold for index in worker.selected]
    precision = sum(chosen) / len(chosen) if chosen else 0.0
    if medium == "text":
        return precision
    return (precision + any(item.title in (worker.answer or "") for item in shown)) / 2


def _gold(medium: Medium, question: Question) -> set[str]:
    return {triple.text for triple in question.gold_triples} if medium == "kg" else set(question.gold_passages)


def _named(medium: Medium, item: Evidence) -> str:
    return item.text if medium == "kg" else item.title
