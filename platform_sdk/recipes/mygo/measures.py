"""What an evaluation of Mujica reports: the answers' scores, and how they came about."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from platform_sdk.evaluation.answers import f1_score
from platform_sdk.recipes.mygo.grammar import Ask, Form, parse_planner
from platform_sdk.records import Rollout


def measures(form: Form, rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
    """What an evaluation reports of each rollout: the answer's scores, and how it came about."""
    return [_measures(form, rollout) for rollout in rollouts]


def _measures(form: Form, rollout: Rollout) -> dict[str, float]:
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
        "searches": float(searches(form, rollout)),
        "tokens": float(sum(sum(t.agent_mask) for t in rollout.trajectories)),
    }
    gold = {triple.text for triple in question.gold_triples} if form == "kg" else set(question.gold_passages)
    if gold:
        seen = {item.text if form == "kg" else item.title for t in rollout.trajectories for item in t.evidence}
        found["evidence_recall"] = len(gold & seen) / len(gold)
    return found


def searches(form: Form, rollout: Rollout) -> int:
    """How often a rollout searched: the sub-questions of its well-formed planner turns, whoever searched for them."""
    said = [turn.text for turn in rollout.main.turns if turn.speaker == "agent" and turn.malformed is None]
    actions = [parse_planner(text, form, candidates=sys.maxsize, most=sys.maxsize) for text in said]
    return sum(len(action.sub_questions) for action in actions if isinstance(action, Ask))
