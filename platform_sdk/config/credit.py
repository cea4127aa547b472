"""Settings of the conversion of rewards to advantages. ``docs/grpo.md`` has the formulae and when to use which."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, Tag, model_validator

from platform_sdk.config.struct import Struct, by_type, equal_to


class AdvantageSpec(Struct):
    """Settings of every credit."""

    negative_weight: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="factor of negative advantages; 0: train on attempts above the baseline only (Xiong et al., "
        "2025, arXiv 2504.11343)",
        exclude_if=equal_to(1.0),
    )
    mute_ties_of: str | None = Field(
        default=None,
        min_length=1,
        description="name of an outcome reward; a group whose attempts are all equal in this reward gets "
        "no advantages, "
        "whatever its other rewards (the condition of dynamic sampling: DAPO, Yu et al., 2025, arXiv "
        "2503.14476, equation 11)",
        exclude_if=equal_to(None),
    )


class GroupCreditSpec(AdvantageSpec):
    """One reward compared within the group. The defaults are GRPO's (see ``training.credit``)."""

    type: Literal["group"] = Field(
        default="group", description="the trained reward, compared within the group", exclude_if=equal_to("group")
    )
    baseline: Literal["mean", "leave_one_out", "none"] = Field(
        default="mean",
        description="baseline of a reward: the group's mean, the mean of the other attempts (RLOO), or 0",
    )
    scale: Literal["group", "batch", "none"] = Field(
        default="group",
        description="divisor of advantages: the rewards' standard deviation in the group, in the update, or 1",
    )
    others: Literal["shared", "own", "none"] = Field(
        default="shared",
        description="credit of trajectories called by the main trajectory: its advantage (shared), an "
        "advantage from their "
        "own reward, or none (not trained on)",
    )
    resample: Literal["equal", "wrong"] = Field(
        default="equal",
        description="groups to resample or replace: groups without any advantage, or groups whose rewards are all 0",
    )

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.baseline == "none" and self.scale != "none":
            raise ValueError("baseline none keeps equal rewards, whose deviation is 0; set scale to none")
        return self


class GdpoCreditSpec(AdvantageSpec):
    """Several rewards, each normalised in its group: GDPO (Liu et al., 2026, arXiv 2601.05242)."""

    type: Literal["gdpo"] = Field(
        description="GDPO: normalise each reward in its group, then weight, sum and whiten over the update"
    )
    weights: dict[str, Annotated[float, Field(ge=-1_000_000, le=1_000_000)]] = Field(
        min_length=1, description="weight of each reward"
    )
    others: Literal["shared", "none"] = Field(
        default="shared",
        description="credit of trajectories called by the main trajectory: its advantage, or none",
    )
    resample: Literal["equal", "wrong"] = Field(
        default="equal",
        description="groups to resample or replace: groups without any advantage, or groups whose "
        "online.reward is all 0",
    )

    @model_validator(mode="after")
    def _weighs(self) -> Self:
        if not any(self.weights.values()):
            raise ValueError("weights are all 0, so no attempt has an advantage; give a reward another weight")
        return self


class InformationGainSpec(AdvantageSpec):
    """Information gain per turn: IGPO (Wang et al., 2025, arXiv 2510.14967)."""

    type: Literal["information_gain"] = Field(
        description="IGPO: a turn's reward is the increase of the gold answer's probability; the last "
        "turn's is the outcome"
    )
    weight: float = Field(default=1.0, gt=0, le=1_000_000, description="factor of the gains; the outcome's factor is 1")
    discount: float = Field(default=1.0, ge=0, le=1, description="discount γ of later turns' rewards")
    normalization: Literal["joint", "separate"] = Field(
        default="joint",
        description="normalise a group's gains and outcomes together (the paper) or separately (an option of the "
        "authors' code)",
    )
    scale: Literal["group", "batch", "none"] = Field(
        default="group",
        description="divisor of advantages: the rewards' standard deviation in the group, in the update, or 1",
    )
    others: Literal["shared", "none"] = Field(
        default="shared",
        description="credit of a trajectory called by a turn of the main trajectory: that turn's advantage, or none",
    )
    resample: Literal["equal", "wrong"] = Field(
        default="equal",
        description="groups to resample or replace: groups with equal outcomes, or groups whose outcomes are all 0",
    )


NO_ANSWER_OPENING = (
    "is information_gain, which scores the gold answer after the text that begins an answer; give that text in "
    "agent.answer_opening, or set group or gdpo"
)
"""Error of credit by information gain for a program without ``agent.answer_opening``."""


ONLY_TURN = (
    "is 1, and online.credit is information_gain, which credits the turns before the answer; set it to 2 or more"
)
"""Error of credit by information gain for an agent that answers in its only turn."""


def no_information_gain(method: str) -> str:
    """Return the error of credit by information gain for a method whose agent has no turns before its answer."""
    return f"is information_gain, but method {method} answers in its only turn; set it to group or gdpo"


def no_called_rewards(method: str) -> str:
    """Return the error of ``others: own`` for a method whose called trajectories have no separate reward."""
    return f"is own, but method {method} has no rewards for called trajectories; set it to shared or none"


CreditChoice = Annotated[
    Annotated[GroupCreditSpec, Tag("group")]
    | Annotated[GdpoCreditSpec, Tag("gdpo")]
    | Annotated[InformationGainSpec, Tag("information_gain")],
    by_type(unnamed="group", other="group"),
]
