"""Recall of gold passages in a dialogue, as a whole and after each of its first turns."""

from __future__ import annotations

from platform_sdk.records import Rollout

TURNS = 3
"""Turns with a metric of their own. The questions have up to four hops, and the last turn answers."""


def evidence_recall(rollout: Rollout) -> dict[str, float]:
    """Return the share of the question's gold passages whose titles the main dialogue's evidence has.

    ``evidence_recall_1`` is the share after the agent's first turn and its observation, and so on; a dialogue that has
    ended keeps its last share, so every rollout has all of them and their means are over the same questions. Empty if
    the question has no gold passages.
    """
    gold = set(rollout.question.gold_passages)
    if not gold:
        return {}
    seen: set[str] = set()
    shares: list[float] = []
    for turn in rollout.main.turns:
        if turn.speaker == "agent":
            shares.append(len(seen) / len(gold))
        seen |= gold & {item.title for item in turn.evidence}
    shares.append(len(seen) / len(gold))
    after = [shares[min(turn, len(shares) - 1)] for turn in range(1, TURNS + 1)]
    return {"evidence_recall": shares[-1]} | {f"evidence_recall_{turn}": share for turn, share in enumerate(after, 1)}
