"""Settings of Mujica and MyGO. Defaults are the paper's, where it gives them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.config.struct import Struct
from platform_sdk.config.training import TrainSpec


class AgentSpec(Struct):
    """Mujica (Mujica-MyGO, section 3.2)."""

    split: bool = Field(True, description="planner and workers; false: one agent reads raw passages (ablation)")
    plan: Literal["dag", "chain"] = Field(
        "dag", description="several sub-questions at a time, or one at a time (ablation)"
    )
    iteration_limit: int = Field(8, ge=1, le=1000, description="planner turns, malformed ones included")
    sub_questions: int = Field(5, ge=1, le=1000, description="most sub-questions of one turn")
    top_k: int = Field(5, ge=1, le=10_000, description="passages or triples that a worker reads")
    planner_tokens: int = Field(256, ge=1, le=1_000_000, description="most tokens of one planner turn")
    worker_tokens: int = Field(256, ge=1, le=1_000_000, description="most tokens of a worker's turn")
    prompts: Literal["standard", "compact"] = Field("standard", description="compact: for very small models")

    @property
    def max_questions(self) -> int:
        """Return the maximum number of sub-questions of one turn."""
        return 1 if self.plan == "chain" else self.sub_questions


class SelectionSpec(Struct):
    """Multi-attempt sampling and the threshold (Mujica-MyGO, section 3.3 and appendix D.3)."""

    questions: int = Field(1000, ge=1, le=10_000_000, description="questions per iteration")
    accepted: int = Field(3, ge=1, le=65_536, description="m: accepted trajectories after which a question is done")
    attempts: int = Field(16, ge=1, le=65_536, description="most attempts at one question")
    reward: Literal["f1", "em"] = "f1"
    initial_threshold: float = Field(ge=0, le=1, description="K before the first iteration; required")
    threshold_cap: float = Field(1.0, gt=0, le=1, description="K never exceeds this, so a perfect answer is accepted")
    threshold: Literal["rising", "fixed"] = Field(
        "rising", description="K follows the mean reward, or stays (the offline variant)"
    )

    @model_validator(mode="after")
    def _starts_within_the_cap(self) -> Self:
        if self.initial_threshold > self.threshold_cap:
            raise ValueError(
                f"initial_threshold {self.initial_threshold} is above threshold_cap {self.threshold_cap}: K never falls"
            )
        return self


class WarmupSpec(Struct):
    """The warm-up before iteration 1 (Mujica-MyGO, sections 4.2 and D.3)."""

    trajectories: int = Field(
        300, ge=1, le=10_000_000, description="few-shot trajectories with EM = 1; 1,000 in the paper's version 2"
    )
    attempts: int = Field(16, ge=1, le=65_536, description="most attempts at one question")
    training: TrainSpec = TrainSpec(learning_rate=1e-5, minimum_learning_rate=1e-6)


class EvaluationSettings(EvaluationSpec):
    """An evaluation run: one attempt at every evaluation question."""

    demonstrate: bool = Field(False, description="show the worked example (few-shot)")
