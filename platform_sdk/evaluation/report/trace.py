"""Decision trace of the page: an answer from given passages, with the evidence that it cites.

It applies to rollouts of one dialogue in which the agent has one turn and the passages come with the question. The page
numbers the passages from 1, as such prompts do, so a citation [n] in the response means the n-th passage.
"""

from __future__ import annotations

import re
from typing import Any

from platform_sdk.records import Rollout, Trajectory

_OPENING = re.compile(r"<([a-z_]+)>")
_CLOSING = re.compile(r"</([a-z_]+)>")


def is_trace(rollout: Rollout) -> bool:
    """Return True if the rollout is one dialogue of one turn that answers from passages in its prompt."""
    main = rollout.main
    said = sum(turn.speaker == "agent" for turn in main.turns)
    given = main.turns[0].evidence if main.turns else ()
    passages = bool(given) and all(item.kind == "passage" for item in given)
    return len(rollout.trajectories) == 1 and said == 1 and passages and main.evidence == given


def sections(text: str) -> list[list[str]]:
    """Return the sections of the response as ``[tag, text]``; text outside all sections has an empty tag."""
    parts: list[list[str]] = []
    end = 0
    closings: dict[str, list[re.Match[str]]] = {}
    for closing in reversed(list(_CLOSING.finditer(text))):
        closings.setdefault(closing[1], []).append(closing)
    for opening in _OPENING.finditer(text):
        if opening.start() < end:
            continue  # inside a section
        waiting = closings.get(opening[1], [])
        while waiting and waiting[-1].start() < opening.end():
            waiting.pop()
        if waiting:
            closing = waiting.pop()
            parts += [["", text[end : opening.start()]], [opening[1], text[opening.end() : closing.start()]]]
            end = closing.end()
    parts.append(["", text[end:]])
    return [[tag, said.strip()] for tag, said in parts if said.strip() or tag]


def trace_of(agent: Trajectory, gold: frozenset[int]) -> dict[str, Any]:
    """Return the decision's data for the page; ``gold`` are the indices of the gold passages in its evidence."""
    chosen = frozenset(agent.selected)
    [turn] = agent.agent_turns
    return {
        "sections": sections(turn.text),
        "malformed": turn.malformed,
        "grounds": _grounds(chosen, gold),
    }


def _grounds(chosen: frozenset[int], gold: frozenset[int]) -> str:
    """Return how the chosen passages relate to the gold ones."""
    if not gold:
        return "unknown"
    if not chosen:
        return "none"
    if chosen == gold:
        return "exact"
    return "partial" if chosen & gold else "other"
