"""Metrics of an evaluation: scores of answers, and of the agent's searches."""

from __future__ import annotations

from platform_sdk.evaluation.metrics.evidence import evidence_recall
from platform_sdk.records import Rollout


def measures(rollout: Rollout) -> dict[str, float]:
    """Return the metrics of a rollout."""
    turns = rollout.main.agent_turns
    return {
        **rollout.rewards,
        "answered": float(rollout.outcome == "answered"),
        "well_formed": float(rollout.malformed_turns == 0),
        "turns": float(len(turns)),
        "searches": float(sum(len(turn.queries) for turn in turns)),
        "tokens": float(sum(rollout.main.agent_mask)),
        **evidence_recall(rollout),
    }
