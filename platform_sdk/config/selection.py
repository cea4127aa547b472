"""Settings of the selection of near-optimal trajectories."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from platform_sdk.config.struct import Struct

NO_OWN_REWARD = "is own, and there is none: name it in agent.reward, as module:function"


class SelectionSpec(Struct):
    """Multi-attempt sampling and the threshold (Mujica-MyGO, section 3.3 and appendices D.1, D.3)."""

    questions: int = Field(1000, ge=1, le=10_000_000, description="training questions per iteration")
    accepted: int = Field(
        3,
        ge=1,
        le=65_536,
        description="accepted attempts per question after which it is not sampled again (the paper's m)",
    )
    attempts: int = Field(16, ge=1, le=65_536, description="maximum attempts per question and iteration")
    reward: Literal["f1", "em", "own"] = Field(
        "f1", description="reward of an attempt: token F1, exact match, or agent.reward"
    )
    initial_threshold: float = Field(
        ge=0, le=1, description="initial threshold: attempts with at least this reward are accepted (the paper's K)"
    )
    threshold_cap: float = Field(
        1.0, gt=0, le=1, description="maximum threshold, so that a perfect answer is always accepted"
    )
    threshold: Literal["rising", "fixed"] = Field(
        "rising",
        description="rising: the threshold follows the mean reward; fixed: constant threshold (the offline variant)",
    )

    @model_validator(mode="after")
    def _starts_within_the_cap(self) -> Self:
        if self.initial_threshold > self.threshold_cap:
            raise ValueError(
                f"initial_threshold {self.initial_threshold} is above threshold_cap {self.threshold_cap}: K never falls"
            )
        return self
