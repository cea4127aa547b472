"""Gold evidence of a question, and the part of it that a rollout retrieved and selected."""

from __future__ import annotations

from typing import Any

from platform_sdk.records import Evidence, Rollout, Trajectory


class GoldEvidence:
    """The gold evidence of a rollout's question, as passages or triples, whichever was searched."""

    def __init__(self, rollout: Rollout) -> None:
        self._question = question = rollout.question
        graph = any(item.kind == "triple" for trajectory in rollout.trajectories for item in trajectory.evidence)
        by_triples = graph or not (question.gold_passages or question.gold_context)
        self._passages = () if by_triples else question.gold_passages
        self._triples = tuple(triple.text for triple in question.gold_triples) if by_triples else ()

    def places(self, trajectory: Trajectory) -> frozenset[int]:
        """Return the indices of the gold pieces in the trajectory's evidence."""
        question = self._question
        given = tuple(passage.id for passage in question.context)
        if given and given == tuple(item.id for item in trajectory.evidence):
            return frozenset(question.gold_positions)  # positions distinguish passages with equal titles
        return frozenset(index for index, item in enumerate(trajectory.evidence) if self._holds(item))

    def found_by(self, rollout: Rollout) -> list[dict[str, Any]]:
        """Return the name of each piece of gold evidence, and if it was retrieved and selected."""
        retrieved: set[str] = set()
        selected: set[str] = set()
        for trajectory in rollout.trajectories:
            for index, item in enumerate(trajectory.evidence):
                names = {item.text} if item.kind == "triple" else {item.title, item.id}
                retrieved |= names
                selected |= names if index in trajectory.selected else set()
        return [
            {"name": name, "retrieved": name in retrieved, "selected": name in selected}
            for name in (*self._passages, *self._triples)
        ]

    def _holds(self, item: Evidence) -> bool:
        if item.kind == "triple":
            return item.text in self._triples
        return item.title in self._passages or item.id in self._passages
