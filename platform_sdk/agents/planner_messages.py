"""Messages to a planner and its workers that all methods with these roles share."""

from __future__ import annotations

from collections.abc import Sequence

from platform_sdk.config.environment import Medium as Medium
from platform_sdk.config.environment import environment_of
from platform_sdk.records import Evidence


def medium_of(environment: str) -> Medium:
    """Return the medium (texts or a knowledge graph) that an environment's agent searches."""
    found = environment_of(environment)
    return "text" if found is None else found.medium


def planner_opening(question: str, candidates: Sequence[str], medium: Medium) -> str:
    """Write the planner's first message: the question and nothing else, but where to start in a knowledge graph."""
    opening = f"Question : {question}"
    return f"{opening}\nCandidates : {number(candidates)}" if medium == "kg" else opening


def worker_opening(question: str, evidence: Sequence[Evidence], medium: Medium) -> str:
    """Write a worker's one message: the sub-question and the numbered materials."""
    return f"Question : {question}\n{materials(evidence, medium)}"


def materials(evidence: Sequence[Evidence], medium: Medium) -> str:
    """Write numbered evidence."""
    return "\n".join(f"[{i}] {piece(item, medium)}" for i, item in enumerate(evidence)) or "( no materials )"


def piece(item: Evidence, medium: Medium) -> str:
    """Write a piece of evidence."""
    return item.text if medium == "kg" else f"{item.title} : {item.text}"


def observation(sentences: Sequence[str], new_candidates: Sequence[str] = (), first: int = 0) -> str:
    """Write the workers' sentences; entities found on the way become candidates numbered from ``first``."""
    text = "Obs: " + "\n".join(sentences)
    return f"{text}\nCandidates : {number(new_candidates, first)}" if new_candidates else text


def error_observation(reason: str) -> str:
    """Write that a turn was malformed."""
    return f"Obs: Error : {reason} ."


def number(names: Sequence[str], first: int = 0) -> str:
    """Write names with their numbers from ``first``."""
    return " ".join(f"[{i}] {name}" for i, name in enumerate(names, start=first))
