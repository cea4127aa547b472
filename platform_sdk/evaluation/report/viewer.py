"""Compact form of rollouts for the page's trajectory viewer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from platform_sdk.evaluation.report.gold import GoldEvidence
from platform_sdk.evaluation.report.samples import Sample
from platform_sdk.evaluation.report.trace import is_trace, trace_of
from platform_sdk.records import SEARCH, Rollout, Trajectory, Turn, call_text
from platform_sdk.tracking.traces import CallTree, call_tree

LONGEST_TEXT = 4000
LONGEST_PROMPT = 1600
LONGEST_CALL = 400
Table = dict[str, int]  # a piece of evidence as JSON -> its index in the page's table


@dataclass(frozen=True)
class _Context:
    """Data shared by the trajectories of one rollout."""

    tree: CallTree
    gold: GoldEvidence
    table: Table


def viewer_data(samples: list[Sample]) -> dict[str, Any]:
    """Return the samples, their rollouts, and one table of all evidence, since passages repeat."""
    table: Table = {}
    rollouts = [
        _rollout(number, rollout, sample, table) for number, sample in enumerate(samples) for rollout in sample.rollouts
    ]
    return {
        "phases": [{"name": sample.name, "shown": len(sample.rollouts), "total": sample.total} for sample in samples],
        "evidence": [json.loads(item) for item in table],
        "rollouts": rollouts,
    }


def _rollout(phase: int, rollout: Rollout, sample: Sample, table: Table) -> dict[str, Any]:
    question = rollout.question
    context = _Context(call_tree(rollout), GoldEvidence(rollout), table)
    began = rollout.program.threads if rollout.program else ()
    reasons = {one.id: {"reason": why} for one, why in zip(rollout.trajectories, began, strict=False)}
    return {
        "phase": phase,
        "id": rollout.id,
        "question": question.text,
        "type": question.type,
        "hops": question.hops,
        "answers": question.answers,
        "outcome": rollout.outcome,
        "attempt": rollout.attempt,
        "seed": rollout.seed,
        "rewards": rollout.rewards,
        "right": rollout.rewards.get("em", 0.0) >= 1.0,
        "malformed": rollout.malformed_turns,
        "accepted": rollout.id in sample.accepted,
        "tokens": sum(sum(trajectory.agent_mask) for trajectory in rollout.trajectories),
        "main": _trajectory(rollout.main, context) | reasons.get(rollout.main.id, {}),
        "steps": _steps(rollout, sample),
        "apart": [_trajectory(other, context) | reasons.get(other.id, {}) for other in context.tree.apart],
        "program": _program(rollout),
        "trace": trace_of(rollout.main, context.gold.places(rollout.main)) if is_trace(rollout) else None,
        "gold": context.gold.found_by(rollout),
        "selects": any(trajectory.selected for trajectory in rollout.trajectories),
        "weights": rollout.weights,
        "corpus": rollout.corpus,
    }


def _program(rollout: Rollout) -> dict[str, Any] | None:
    """Return the end of the user's program; None if the agent is built in."""
    end = rollout.program
    if end is None:
        return None
    return {
        "threads": len(end.threads), "status": end.status, "notes": end.notes, "measures": end.measures,
        "stderr": end.stderr[-LONGEST_CALL:],
    }  # fmt: skip


def _steps(rollout: Rollout, sample: Sample) -> list[dict[str, Any]]:
    """Return the rewards of each of the agent's turns, and the advantages if the rollout was trained on."""
    if rollout.id in sample.credit:
        return [turn.model_dump() for turn in sample.credit[rollout.id]]
    return [{"rewards": turn.rewards} for turn in rollout.main.agent_turns]


def _trajectory(trajectory: Trajectory, context: _Context) -> dict[str, Any]:
    found = iter(_evidence(trajectory, context))
    turns: list[dict[str, Any]] = []
    for place, turn in enumerate(trajectory.turns):
        called = context.tree.called.get((trajectory.id, place), [])
        more = {
            "malformed": turn.malformed,
            "queries": turn.queries,
            "tools": [
                {
                    "name": call.tool,
                    "call": call_text(call)[:LONGEST_CALL],
                    "result": call.text[:LONGEST_CALL],
                    "error": call.error,
                }
                for call in turn.tool_calls
                if call.tool != SEARCH
            ],
            "evidence": [next(found) for _ in turn.evidence],
            "called": [_trajectory(other, context) for other in called],
        }
        shown = {"by": turn.speaker, "text": _clip(turn, place)}
        turns.append(shown | {name: value for name, value in more.items() if value})
    return {
        "id": trajectory.id,
        "role": trajectory.role,
        "use": trajectory.use,
        "answer": trajectory.answer,
        "turns": turns,
    }


def _evidence(trajectory: Trajectory, context: _Context) -> list[list[Any]]:
    """Return ``[place in the table, score, selected, gold, parts]`` for each piece of evidence, in its order.

    ``parts`` are the components of the score; omitted if there are none.
    """
    places = context.gold.places(trajectory)
    found: list[list[Any]] = []
    for index, item in enumerate(trajectory.evidence):
        place = context.table.setdefault(item.model_dump_json(exclude={"score", "parts"}), len(context.table))
        parts = _rounded(item.parts)
        flags = [int(index in trajectory.selected), int(index in places)]
        found.append([place, round(item.score, 4), *flags, *([parts] if parts else [])])
    return found


def _rounded(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _rounded(value) if isinstance(value, Mapping) else round(value, 4) for name, value in parts.items()}


def _clip(turn: Turn, place: int) -> str:
    """Shorten a long text in the middle, so a prompt's instructions and the question at its end stay visible."""
    longest = LONGEST_PROMPT if place == 0 and turn.speaker == "environment" else LONGEST_TEXT
    if len(turn.text) <= longest:
        return turn.text
    half = longest // 2
    return f"{turn.text[:half]}\n… ({len(turn.text) - 2 * half} characters left out) …\n{turn.text[-half:]}"
