"""Settings of the conversion of rewards to advantages. ``docs/grpo.md`` has the formulae and when to use which."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from platform_sdk.config.struct import Struct, equal_to


class AdvantageSpec(Struct):
    """Settings of every credit."""

    negative_weight: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="factor of advantages below 0; 0: only attempts above the baseline are learned from (Xiong et al., "
        "2025, arXiv 2504.11343)",
        exclude_if=equal_to(1.0),
    )
    mute_ties_of: str | None = Field(
        default=None,
        min_length=1,
        description="name of an outcome reward: a group of attempts that are equal in it has no advantages, whatever "
        "its other rewards (the condition of dynamic sampling: DAPO, Yu et al., 2025, arXiv 2503.14476, equation 11)",
        exclude_if=equal_to(None),
    )


class GroupCreditSpec(AdvantageSpec):
    """One reward compared within the group. The defaults are GRPO's (see ``training.credit``)."""

    type: Literal["group"] = Field(
        default="group", description="the trained reward, compared within the group", exclude_if=equal_to("group")
    )
    baseline: Literal["mean", "leave_one_out", "none"] = Field(
        default="mean", description="what a reward is compared with: the group's mean, that of the others (RLOO), or 0"
    )
    scale: Literal["group", "batch", "none"] = Field(
        default="group",
        description="what advantages are divided by: the rewards' deviation in the group, in the update, or 1",
    )
    others: Literal["shared", "own", "none"] = Field(
        default="shared",
        description="credit of the trajectories that the main one called: its advantage, one by their own reward, or "
        "none (they are not trained on)",
    )
    resample: Literal["equal", "wrong"] = Field(
        default="equal",
        description="groups to sample again or to replace: those that teach nothing, or those with all rewards 0",
    )

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.baseline == "none" and self.scale != "none":
            raise ValueError("baseline none keeps equal rewards, whose deviation is 0; set scale to none")
        return self


class GdpoCreditSpec(AdvantageSpec):
    """Several rewards, each normalised in its group: GDPO (Liu et al., 2026, arXiv 2601.05242)."""

    type: Literal["gdpo"] = Field(
        description="GDPO: each reward is normalised in its group, then weighted, summed and whitened over the update"
    )
    weights: dict[str, float] = Field(min_length=1, description="the rewards that are trained for, with their weights")
    others: Literal["shared", "none"] = Field(
        default="shared",
        description="credit of the trajectories that the main one called: its advantage, or none",
    )
    resample: Literal["equal", "wrong"] = Field(
        default="equal",
        description="groups to sample again or to replace: those that teach nothing, or those whose online.reward is "
        "0 throughout",
    )


class InformationGainSpec(AdvantageSpec):
    """Information gain per turn: IGPO (Wang et al., 2025, arXiv 2510.14967)."""

    type: Literal["information_gain"] = Field(
        description="IGPO: a turn's reward is the rise of the gold answer's probability, the last turn's the outcome"
    )
    weight: float = Field(default=1.0, gt=0, le=1_000_000, description="factor of the gains; the outcome has factor 1")
    discount: float = Field(
        default=1.0, ge=0, le=1, description="γ: a turn has its own reward and, discounted, those of later turns"
    )
    normalization: Literal["joint", "separate"] = Field(
        default="joint",
        description="gains and outcomes of a group are normalised together (the paper), or each kind by itself (an "
        "option of the authors' code)",
    )
    scale: Literal["group", "batch", "none"] = Field(
        default="group",
        description="what advantages are divided by: the rewards' deviation in the group, in the update, or 1",
    )
    others: Literal["shared", "none"] = Field(
        default="shared",
        description="credit of a trajectory that a turn of the main one called: that turn's advantage, or none",
    )
    resample: Literal["equal", "wrong"] = Field(
        default="equal",
        description="groups to sample again or to replace: those with equal outcomes, or those with all outcomes 0",
    )


def no_information_gain(method: str) -> str:
    """Return the error of credit by information gain for a method whose agent has no turns before its answer."""
    return f"is information_gain, but method {method} answers in its only turn; set it to group or gdpo"


def _type(value: Any) -> str:
    """Return the type of a credit; one without a type compares within the group."""
    found = value.get("type", "group") if isinstance(value, dict) else getattr(value, "type", "group")
    return str(found)


CreditChoice = Annotated[
    Annotated[GroupCreditSpec, Tag("group")]
    | Annotated[GdpoCreditSpec, Tag("gdpo")]
    | Annotated[InformationGainSpec, Tag("information_gain")],
    Discriminator(_type),
]
