"""Settings of ProGraph-R1 in a recipe. Defaults are the paper's, if it gives them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from platform_sdk.config.credit import AdvantageSpec
from platform_sdk.config.retrieval import Searched
from platform_sdk.config.source import Fault
from platform_sdk.config.struct import Struct, equal_to


class CreditSpec(AdvantageSpec):
    """Step-wise GRPO: R_t = outcome + λ1 · step progress + λ2 · structure (ProGraph-R1, section 3.3).

    The paper does not give λ1, λ2, n and the baseline, so they have no defaults. The other defaults are the paper's.
    """

    baseline: Literal["step", "trajectory", "return_to_go"] = Field(
        description="baseline of a step: the group's steps at the same index, all steps of the group, or all steps "
        "with their rewards-to-go"
    )
    progress_weight: float = Field(ge=0, le=1_000_000, description="λ1: weight of the step progress; 0: not estimated")
    structure_weight: float = Field(ge=0, le=1_000_000, description="λ2: weight of the structure reward")
    estimator: Literal["sampling", "likelihood"] | None = Field(
        None,
        description="estimator of step progress: completions from each history, or the probability of the gold answer; "
        "required if progress_weight is above 0",
    )
    completions: int | None = Field(
        None, ge=1, le=1024, description="n: completions from each history; required by the estimator sampling"
    )

    train_completions: bool = Field(
        False,
        description="also train on the completions of the estimator sampling: the completions of a history are a "
        "group, compared by their outcomes, which mute_ties_of does not mute (after the branches of Tree-GRPO, Ji et "
        "al., 2025, arXiv 2509.21240); each completion is kept with its whole history, in memory and in files",
        exclude_if=equal_to(False),
    )
    aggregation: Literal["sum", "gdpo"] = Field(
        "sum",
        description="sum: R_t is normalised (the paper); gdpo: outcome, step progress and structure are each "
        "normalised, then weighted, summed and whitened over the update (GDPO, Liu et al., 2026, arXiv 2601.05242)",
        exclude_if=equal_to("sum"),
    )
    scale: Literal["group", "batch", "none"] = Field(
        "group",
        description="divisor of advantages: the standard deviation of the baseline's steps, of all steps of the "
        "update, or 1",
        exclude_if=equal_to("group"),
    )

    @model_validator(mode="after")
    def _aggregation_fits(self) -> Self:
        if self.aggregation == "gdpo" and self.scale != "group":
            raise ValueError(
                f"aggregation gdpo normalises in the group and over the update; leave scale {self.scale} out"
            )
        if self.aggregation == "gdpo" and not self.progress_weight and not self.structure_weight:
            raise ValueError(
                "aggregation gdpo combines rewards, and both weights are 0; set progress_weight or structure_weight, "
                "or aggregation to sum"
            )
        return self

    @model_validator(mode="after")
    def _estimator_fits(self) -> Self:
        if (self.estimator is not None) != (self.progress_weight > 0):
            raise ValueError("estimator must be given for a progress_weight above 0, and only for it")
        if (self.completions is not None) != (self.estimator == "sampling"):
            raise ValueError("completions must be given for the estimator sampling, and only for it")
        if self.train_completions and (self.completions or 0) < 2:
            raise ValueError(
                "train_completions compares the completions of a history, so it needs the estimator sampling and at "
                "least 2 completions"
            )
        if self.train_completions and (self.scale, self.aggregation) != ("group", "sum"):
            raise ValueError(
                "train_completions normalises the completions of a history among themselves; leave scale and "
                "aggregation at their defaults"
            )
        return self


class AgentSpec(Struct):
    """The agent, and the credit of its steps."""

    max_turns: int = Field(10, ge=1, le=1000, description="maximum number of turns, malformed ones included")
    max_tokens: int = Field(256, ge=1, le=1_000_000, description="maximum number of tokens of a turn")
    top_k: int = Field(5, ge=1, le=10_000, description="pieces of evidence shown after a query")
    prompts: Literal["standard", "compact"] = Field("standard", description="compact: for very small models")
    demonstrate: bool = Field(False, description="show a worked example before the question, for small models")
    count_repeats: bool = Field(
        True,
        description="structure reward: also count entities of evidence that an earlier turn already retrieved (the "
        "paper); false: repeated searches earn nothing",
        exclude_if=equal_to(True),
    )
    credit: CreditSpec | None = Field(None, description="step-wise GRPO; null: plain GRPO on the outcome")

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Return the names of a rollout's rewards, for the settings that name one."""
        return ("em", "f1", "format", "accuracy", "reward", "struct")

    def misfit(self, environment: str, searched: Searched) -> Fault | None:
        """Return the fault if the agent cannot search with the retrieval method, else None."""
        return searched.scope_fault("ProGraph's agent", known=())
