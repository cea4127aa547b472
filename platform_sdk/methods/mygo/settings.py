"""Settings of Mujica and MyGO. Defaults are the paper's, if it gives them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from platform_sdk.agents.own_reward import RewardName
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.config.struct import Struct
from platform_sdk.config.training import TrainSpec


class AgentSpec(Struct):
    """Mujica (Mujica-MyGO, section 2.2)."""

    split: bool = Field(True, description="planner and workers; false: one agent reads raw passages (ablation)")
    plan: Literal["dag", "chain"] = Field(
        "dag", description="several sub-questions at a time, or one at a time (ablation)"
    )
    iteration_limit: int = Field(
        8, ge=1, le=1000, description="maximum turns of the planner per question, malformed ones included"
    )
    sub_questions: int = Field(5, ge=1, le=1000, description="maximum sub-questions of one turn")
    top_k: int = Field(5, ge=1, le=10_000, description="passages or triples that a worker reads")
    planner_tokens: int = Field(256, ge=1, le=1_000_000, description="maximum tokens of one planner turn")
    worker_tokens: int = Field(256, ge=1, le=1_000_000, description="maximum tokens of a worker's turn")
    reward: RewardName | None = Field(
        None,
        description="a reward of your own, module:function, from a platform_sdk.records.Rollout to a number; "
        "selection.reward: own selects by it",
    )
    prompts: Literal["standard", "compact"] = Field("standard", description="compact: for very small models")

    @property
    def rewards_called(self) -> bool:
        """True, since workers have their own rewards (``Method.called_reward``); ``validate`` reads this."""
        return True

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Return the names of a rollout's rewards, for the settings that name one."""
        return ("em", "f1", "well_formed", *(["own"] if self.reward else []))

    @property
    def max_questions(self) -> int:
        """Return the maximum number of sub-questions of one turn."""
        return 1 if self.plan == "chain" else self.sub_questions


class WarmupSpec(Struct):
    """The warm-up before iteration 1 (Mujica-MyGO, sections 4.2 and D.3)."""

    trajectories: int = Field(
        300,
        ge=1,
        le=10_000_000,
        description="attempts with an exactly right answer, sampled with a worked example, to begin with; "
        "the paper has 300 in appendix D.3 and 1,000 in section 4.2",
    )
    attempts: int = Field(16, ge=1, le=65_536, description="maximum attempts at one question")
    training: TrainSpec = Field(
        TrainSpec(learning_rate=1e-5, minimum_learning_rate=1e-6), description="the training on those attempts"
    )


class EvaluationSettings(EvaluationSpec):
    """An evaluation run: one attempt at every evaluation question."""

    demonstrate: bool = Field(False, description="show the worked example (few-shot)")
