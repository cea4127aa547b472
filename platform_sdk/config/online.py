"""Settings of training a policy online, with GRPO."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from platform_sdk.config.training import OptimiserSpec


class OnlineSpec(OptimiserSpec):
    """The settings of one online run. The defaults are ARENA's on its published code.

    An *update* samples ``questions`` groups of ``group`` rollouts with the current weights, scores them and
    makes ``iterations`` optimiser steps on them. The paper's own run is 98 updates: 25,000 questions once.
    """

    learning_rate: float = Field(default=3e-6, gt=0, le=10, description="where the cosine starts")
    minimum_learning_rate: float = Field(default=0.0, ge=0, le=10, description="where the cosine ends")
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1, description="share of the steps with a rising rate")
    updates: int = Field(
        ge=0, le=1_000_000, description="how often the policy samples and learns; 0: it stays as it is"
    )
    questions: int = Field(default=256, ge=1, le=1_000_000, description="per update, over all processes")
    group: int = Field(default=7, ge=2, le=65_536, description="rollouts per question, whose rewards are compared")
    iterations: int = Field(default=1, ge=1, le=1000, description="optimiser steps on the rollouts of one update")
    clip: float = Field(
        default=0.2, gt=0, lt=1, description="the ratio of new to old probability counts within 1 - clip and 1 + clip"
    )
    beta: float = Field(default=0.04, ge=0, le=1000, description="weight of the KL term; 0: no reference model")
    kl: Literal["k1", "k2", "k3"] = Field(
        default="k2", description="estimator of the divergence from the reference: k2 is ARENA's stable one"
    )
    normalization: Literal["token", "sequence"] = Field(
        default="token",
        description="mean over the step's agent tokens, or mean over trajectories of the mean over their agent tokens",
    )
    reward: str = Field(default="reward", min_length=1, description="which of a rollout's named rewards is learned")
    resamples: int = Field(
        default=0, ge=0, le=1000, description="how often a group whose rewards are all equal is sampled again"
    )
    off_policy: bool = Field(
        default=False, description="sample the next update's rollouts before this one is made, and correct for it"
    )
    evaluate_every: int = Field(
        default=0, ge=0, le=1_000_000, description="updates between evaluations; 0: only at the end"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.deepspeed == "zero3":
            raise ValueError("deepspeed zero3 divides the weights, which the sampling engine needs whole; use zero2")
        return self
