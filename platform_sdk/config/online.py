"""Settings of training a policy online, with GRPO."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from platform_sdk.config.struct import Struct
from platform_sdk.config.training import OptimiserSpec


class GroupCreditSpec(Struct):
    """Conversion of a group's rewards to advantages. The defaults are GRPO's (see ``training.credit``)."""

    baseline: Literal["mean", "leave_one_out", "none"] = Field(
        default="mean", description="what a reward is compared with: the group's mean, that of the others (RLOO), or 0"
    )
    scale: Literal["group", "batch", "none"] = Field(
        default="group",
        description="what advantages are divided by: the rewards' deviation in the group, in the update, or 1",
    )
    positive_only: bool = Field(default=False, description="count advantages below 0 as 0")
    others: Literal["shared", "own", "none"] = Field(
        default="shared",
        description="credit of the trajectories that the main one called: its advantage, one by their own reward, or "
        "none (they are not trained on)",
    )
    resample: Literal["equal", "wrong"] = Field(
        default="equal",
        description="groups to sample again: those that teach nothing, or those with all rewards 0",
    )

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.baseline == "none" and self.scale != "none":
            raise ValueError("baseline none keeps equal rewards, whose deviation is 0; set scale to none")
        return self


class OnlineSpec(OptimiserSpec):
    """The settings of one online run. The defaults are ARENA's on its published code.

    An *update* samples ``questions`` groups of ``group`` rollouts with the current weights, scores them and
    makes ``mini_batches`` optimiser steps on them, ``iterations`` times. The paper's own run is 98 updates: 25,000
    questions once.
    """

    learning_rate: float = Field(
        default=3e-6, gt=0, le=10, description="learning rate at the start; it falls along a cosine"
    )
    minimum_learning_rate: float = Field(default=0.0, ge=0, le=10, description="learning rate at the end")
    warmup_ratio: float = Field(
        default=0.1, ge=0, lt=1, description="share of the steps, at the start, in which the learning rate rises from 0"
    )
    updates: int = Field(
        ge=0, le=1_000_000, description="how often the policy samples and learns; 0: it stays as it is"
    )
    questions: int = Field(
        default=256, ge=1, le=1_000_000, description="questions per update, of all processes together"
    )
    group: int = Field(default=7, ge=2, le=65_536, description="rollouts per question, whose rewards are compared")
    mini_batches: int = Field(
        default=1, ge=1, le=1000, description="optimiser steps in which an update's questions are gone through once"
    )
    iterations: int = Field(default=1, ge=1, le=1000, description="how often an update's questions are gone through")
    clip: float = Field(
        default=0.2, gt=0, lt=1, description="the ratio of new to old probability counts within 1 - clip and 1 + clip"
    )
    beta: float = Field(default=0.04, ge=0, le=1000, description="weight of the KL term; 0: no reference model")
    kl: Literal["k1", "k2", "k3"] = Field(
        default="k2", description="estimator of the divergence from the reference: k2 is ARENA's stable one"
    )
    normalization: Literal["token", "sequence", "constant"] = Field(
        default="token",
        description="mean over the step's agent tokens, mean over trajectories of the mean over their agent tokens, or "
        "mean over trajectories of the sum over their agent tokens divided by normalization_length (Dr. GRPO)",
    )
    normalization_length: int | None = Field(
        default=None, ge=1, le=100_000_000, description="tokens; required by normalization constant"
    )
    scale_logits: bool = Field(
        default=False, description="train the policy at the sampling temperature (TRL, verl) instead of at 1 (ARENA)"
    )
    credit: GroupCreditSpec = Field(
        default=GroupCreditSpec(), description="how the rewards of a group become advantages"
    )
    reward: str = Field(default="reward", min_length=1, description="name of the reward that is maximised")
    resamples: int = Field(
        default=0, ge=0, le=1000, description="how often a group of credit.resample is sampled again"
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
        if self.mini_batches > self.questions:
            raise ValueError(f"mini_batches {self.mini_batches} is above questions {self.questions}")
        if (self.normalization == "constant") != (self.normalization_length is not None):
            raise ValueError("normalization constant and normalization_length go together; set both or neither")
        if self.scale_logits and self.off_policy:
            raise ValueError(
                "scale_logits needs the weights that sampled, and off_policy has newer ones; leave one out"
            )
        return self

    @property
    def steps_each(self) -> int:
        """Optimiser steps of an update."""
        return self.mini_batches * self.iterations
