"""Rollouts in the compact form that the page's trajectory viewer reads."""

from __future__ import annotations

import re
from typing import Any

from platform_sdk.evaluation.report.gold import GoldEvidence
from platform_sdk.evaluation.report.samples import Sample
from platform_sdk.evaluation.report.trace import is_trace, trace_of
from platform_sdk.records import Rollout, Trajectory, Turn
from platform_sdk.tracking.traces import workers_by_turn

Table = dict[tuple[str, ...], int]  # id, kind, title and text of a piece of evidence -> its place
LONGEST_TEXT = 4000
LONGEST_PROMPT = 1600
# The sub-questions of a turn, in either form of the grammar (a fact of the method, see mygo's grammar).
_TEXT_SEARCH = re.compile(r"<search>((?:(?!</?search>).)*+)</search>", re.DOTALL)
_GRAPH_SEARCH = re.compile(r'Search\s*\(\s*\[\s*\d{1,4}\s*\]\s*,\s*"([^"]*)"\s*\)')


def viewer_data(samples: list[Sample]) -> dict[str, Any]:
    """Return the samples, their rollouts, and one table of all evidence, since passages are found again and again."""
    table: Table = {}
    rollouts = [
        _rollout(number, rollout, rollout.id in sample.accepted, table)
        for number, sample in enumerate(samples)
        for rollout in sample.rollouts
    ]
    return {
        "phases": [{"name": sample.name, "shown": len(sample.rollouts), "total": sample.total} for sample in samples],
        "evidence": [dict(zip(("id", "kind", "title", "text"), item, strict=True)) for item in table],
        "rollouts": rollouts,
    }


def _rollout(phase: int, rollout: Rollout, accepted: bool, table: Table) -> dict[str, Any]:
    question = rollout.question
    gold = GoldEvidence(rollout)
    workers = workers_by_turn(rollout)
    turns: list[dict[str, Any]] = []
    number = 0
    for place, turn in enumerate(rollout.main.turns):
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
        "answer": rollout.main.answer,
        "outcome": rollout.outcome,
        "attempt": rollout.attempt,
        "seed": rollout.seed,
        "rewards": rollout.rewards,
        "right": rollout.rewards.get("em", 0.0) >= 1.0,
        "malformed": rollout.malformed_turns,
        "accepted": accepted,
        "tokens": sum(sum(trajectory.agent_mask) for trajectory in rollout.trajectories),
        "turns": turns,
        "trace": trace_of(rollout.main, gold.places(rollout.main)) if is_trace(rollout) else None,
        "evidence": _evidence(rollout.main, gold, table),
        "gold": gold.found_by(rollout),
        "weights": rollout.weights,
        "corpus": rollout.corpus,
    }


def _worker(worker: Trajectory, asked: str | None, gold: GoldEvidence, table: Table) -> dict[str, Any]:
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


def _evidence(trajectory: Trajectory, gold: GoldEvidence, table: Table) -> list[list[Any]]:
    """Return ``[place in the table, score, selected, gold]`` for each piece of evidence, in the order of retrieval."""
    found: list[list[Any]] = []
    places = gold.places(trajectory)
    for index, item in enumerate(trajectory.evidence):
        place = table.setdefault((item.id, item.kind, item.title, item.text), len(table))
        found.append([place, round(item.score, 4), int(index in trajectory.selected), int(index in places)])
    return found


def _sub_questions(text: str, workers: int) -> list[str | None]:
    for pattern in (_TEXT_SEARCH, _GRAPH_SEARCH):
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
