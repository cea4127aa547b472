"""Rollouts in the compact form that the page's trajectory viewer reads."""

from __future__ import annotations

import re
from typing import Any

from platform_sdk.evaluation.report.content import Phase
from platform_sdk.records import Evidence, Rollout, Trajectory, Turn
from platform_sdk.tracking.traces import workers_by_turn

LONGEST_TEXT = 4000
LONGEST_PROMPT = 1600
# The sub-questions of a turn, in either form of the grammar (a fact of the method, see mygo's grammar).
_SUB_QUESTIONS = (re.compile(r"<search>(.*?)</search>", re.DOTALL), re.compile(r'Search\s*\([^"]*"([^"]*)"\s*\)'))


def viewer_data(phases: list[Phase]) -> dict[str, Any]:
    """Return the phases, their rollouts, and one table of all evidence, since passages are found again and again."""
    table: dict[Evidence, int] = {}
    rollouts = [
        _rollout(number, rollout, rollout.id in phase.accepted, table)
        for number, phase in enumerate(phases)
        for rollout in phase.rollouts
    ]
    return {
        "phases": [{"name": phase.name, "shown": len(phase.rollouts), "total": phase.total} for phase in phases],
        "evidence": [{"id": item.id, "kind": item.kind, "title": item.title, "text": item.text} for item in table],
        "rollouts": rollouts,
    }


def _rollout(phase: int, rollout: Rollout, accepted: bool, table: dict[Evidence, int]) -> dict[str, Any]:
    question = rollout.question
    gold = _GoldEvidence(rollout)
    workers = workers_by_turn(rollout)
    turns: list[dict[str, Any]] = []
    number = 0
    for place, turn in enumerate(rollout.planner.turns):
        shown: dict[str, Any] = {"by": turn.speaker, "text": _clip(turn, place)}
        if turn.malformed:
            shown["malformed"] = turn.malformed
        if turn.speaker == "agent":
            called = workers.get(number, [])
            asked = _sub_questions(turn.text, len(called))
            shown["workers"] = [_worker(worker, asked[i], gold, table) for i, worker in enumerate(called)]
            number += 1
        turns.append(shown)
    return {
        "phase": phase,
        "id": rollout.id,
        "question": question.text,
        "type": question.type,
        "hops": question.hops,
        "answers": question.answers,
        "answer": rollout.planner.answer,
        "outcome": rollout.outcome,
        "attempt": rollout.attempt,
        "seed": rollout.seed,
        "rewards": rollout.rewards,
        "right": rollout.rewards.get("em", 0.0) >= 1.0,
        "malformed": rollout.malformed_turns,
        "accepted": accepted,
        "tokens": sum(sum(trajectory.agent_mask) for trajectory in rollout.trajectories),
        "turns": turns,
        "evidence": _evidence(rollout.planner, gold, table),
        "gold": gold.found_by(rollout),
        "weights": rollout.weights,
        "corpus": rollout.corpus,
    }


class _GoldEvidence:
    """The gold evidence of a question in the form that was searched, and what of it was retrieved and selected."""

    def __init__(self, rollout: Rollout) -> None:
        question = rollout.question
        graph = any(item.kind == "triple" for trajectory in rollout.trajectories for item in trajectory.evidence)
        by_triples = graph or not question.gold_passages
        self.passages = () if by_triples else question.gold_passages
        self.triples = tuple(triple.text for triple in question.gold_triples) if by_triples else ()

    def holds(self, item: Evidence) -> bool:
        if item.kind == "triple":
            return item.text in self.triples
        return item.title in self.passages or item.id in self.passages

    def found_by(self, rollout: Rollout) -> list[dict[str, Any]]:
        retrieved: set[str] = set()
        selected: set[str] = set()
        for trajectory in rollout.trajectories:
            for index, item in enumerate(trajectory.evidence):
                names = {item.text} if item.kind == "triple" else {item.title, item.id}
                retrieved |= names
                selected |= names if index in trajectory.selected else set()
        return [
            {"name": name, "retrieved": name in retrieved, "selected": name in selected}
            for name in (*self.passages, *self.triples)
        ]


def _worker(worker: Trajectory, asked: str | None, gold: _GoldEvidence, table: dict[Evidence, int]) -> dict[str, Any]:
    return {
        "id": worker.id,
        "asked": asked,
        "answer": worker.answer,
        "evidence": _evidence(worker, gold, table),
        "turns": [
            {"by": turn.speaker, "text": _clip(turn, place), "malformed": turn.malformed}
            for place, turn in enumerate(worker.turns)
        ],
    }


def _evidence(trajectory: Trajectory, gold: _GoldEvidence, table: dict[Evidence, int]) -> list[list[Any]]:
    """Return ``[place in the table, score, selected, gold]`` for each piece of evidence, in the order of retrieval."""
    found: list[list[Any]] = []
    for index, item in enumerate(trajectory.evidence):
        place = table.setdefault(item.model_copy(update={"score": 0.0}), len(table))
        found.append([place, round(item.score, 4), int(index in trajectory.selected), int(gold.holds(item))])
    return found


def _sub_questions(text: str, workers: int) -> list[str | None]:
    for pattern in _SUB_QUESTIONS:
        found = [match.strip() for match in pattern.findall(text)]
        if len(found) == workers:
            return list(found)
    return [None] * workers


def _clip(turn: Turn, place: int) -> str:
    """Shorten a long text in its middle: a prompt's instructions and the question at its end both stay visible."""
    longest = LONGEST_PROMPT if place == 0 and turn.speaker == "environment" else LONGEST_TEXT
    if len(turn.text) <= longest:
        return turn.text
    half = longest // 2
    return f"{turn.text[:half]}\n… ({len(turn.text) - 2 * half} characters left out) …\n{turn.text[-half:]}"
