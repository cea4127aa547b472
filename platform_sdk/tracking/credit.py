"""``rollouts/credit/NNNN.jsonl`` of an online phase: rewards and advantages of the turns of an update."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from platform_sdk.records import Record


class TurnCredit(BaseModel):
    """A turn's rewards, including prepared rewards, and the mean advantage of its tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rewards: dict[str, float]
    advantage: float


class RolloutCredit(Record):
    """Credit of the agent's turns in a rollout's main trajectory; ``rollout`` is the rollout's id."""

    KIND: ClassVar[str] = "rollout_credit"
    rollout: str
    turns: tuple[TurnCredit, ...]


def credit_file(rollouts: Path) -> Path:
    """Return the file with the credit of an update, given one of the files of its rollouts."""
    return rollouts.parent / "credit" / f"{rollouts.name.partition('.')[0]}.jsonl"
