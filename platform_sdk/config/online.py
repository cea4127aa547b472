"""Settings of training a policy online, with GRPO."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, Tag, model_validator

from platform_sdk.config.credit import CreditChoice, GroupCreditSpec
from platform_sdk.config.struct import Struct, by_type, equal_to
from platform_sdk.config.training import OptimiserSpec

SMALLEST_BETA = 1e-9


class ClipRange(Struct):
    """GRPO's clipping with separate bounds: clip-higher (DAPO, Yu et al., 2025, arXiv 2503.14476, section 3.1)."""

    type: Literal["range"] = Field(description="clip-higher: the ratio is clipped to 1 - low and 1 + high")
    low: float = Field(default=0.2, gt=0, lt=1, description="lower clip: 1 - low")
    high: float = Field(default=0.28, gt=0, le=1000, description="upper clip: 1 + high")


class CispoClip(Struct):
    """CISPO (MiniMax-M1, 2025, arXiv 2506.13585): the ratio is a bounded weight, and every token keeps its gradient."""

    type: Literal["cispo"] = Field(
        description="CISPO: the ratio is a constant weight of at most maximum; no token is dropped"
    )
    maximum: float = Field(
        default=5.0,
        gt=0,
        le=1000,
        description="maximum weight (5 in ScaleRL, Khatri et al., 2025, arXiv 2510.13786)",
    )


class GspoClip(Struct):
    """GSPO (Zheng et al., 2025, arXiv 2507.18071): the ratio is the trajectory's, the geometric mean of its tokens'."""

    type: Literal["gspo"] = Field(
        description="GSPO: one ratio per trajectory, the geometric mean over its agent tokens; requires normalization "
        "sequence"
    )
    low: float = Field(default=3e-4, gt=0, lt=1, description="lower clip: 1 - low")
    high: float = Field(default=4e-4, gt=0, le=1000, description="upper clip: 1 + high")


Clip = Annotated[
    Annotated[float, Field(gt=0, lt=1), Tag("a number")]
    | Annotated[ClipRange, Tag("range")]
    | Annotated[CispoClip, Tag("cispo")]
    | Annotated[GspoClip, Tag("gspo")],
    by_type(unnamed="range", other="a number"),
]


class EngineCorrection(Struct):
    """Truncated importance weights between the trainer's policy and the engine's (TIS, Yao et al., 2025)."""

    level: Literal["token", "sequence"] = Field(
        default="token", description="one weight per token, or one per trajectory (the product over its tokens)"
    )
    maximum: float = Field(default=2.0, gt=0, le=1000, description="maximum weight; larger ones are truncated")


class OnlineSpec(OptimiserSpec):
    """The settings of one online run. The defaults are ARENA's on its published code.

    An *update* samples ``questions`` groups of ``group`` rollouts with the current weights, scores them and
    makes ``mini_batches`` optimiser steps on them, ``iterations`` times. The paper's own run is 98 updates: 25,000
    questions once.
    """

    learning_rate: float = Field(
        default=3e-6, ge=1e-12, le=10, description="initial learning rate; cosine decay to minimum_learning_rate"
    )
    minimum_learning_rate: float = Field(default=0.0, ge=0, le=10, description="final learning rate")
    warmup_ratio: float = Field(
        default=0.1, ge=0, lt=1, description="share of the steps for linear warm-up of the learning rate"
    )
    updates: int = Field(ge=0, le=1_000_000, description="number of updates, each on fresh rollouts; 0: no training")
    questions: int = Field(default=256, ge=1, le=1_000_000, description="questions per update over all processes")
    group: int = Field(default=7, ge=2, le=65_536, description="rollouts per question; their rewards are compared")
    mini_batches: int = Field(
        default=1, ge=1, le=1000, description="optimiser steps per pass over an update's questions"
    )
    iterations: int = Field(default=1, ge=1, le=1000, description="passes over an update's questions")
    clip: Clip = Field(
        default=0.2,
        description="bound of the ratio ρ of new to old probability: a number for GRPO's 1 - clip to 1 + clip, or a "
        "struct for clip-higher (type: range), CISPO or GSPO",
    )
    engine_correction: EngineCorrection | None = Field(
        default=None,
        description="weight each token's policy loss (not the KL term) by the truncated ratio of the trainer's "
        "probability under the current weights to the engine's (TIS); null: use the engine's probabilities as the "
        "policy's",
        exclude_if=equal_to(None),
    )
    mask_truncated: bool = Field(
        default=False,
        description="exclude trajectories that ended at the token or context limit from the loss; their rewards are "
        "still compared (overlong filtering: DAPO, section 3.4)",
        exclude_if=equal_to(False),
    )
    beta: float = Field(default=0.04, ge=0, le=1000, description="weight of the KL term; 0: no reference model")
    kl: Literal["k1", "k2", "k3"] = Field(
        default="k2",
        description="estimator of the KL divergence from the reference model; k2 is ARENA's stable estimator",
    )
    normalization: Literal["token", "sequence", "constant"] = Field(
        default="token",
        description="token: mean over the step's agent tokens; sequence: mean over trajectories of each "
        "one's token mean; "
        "constant: mean over trajectories of the token sum divided by normalization_length (Dr. GRPO)",
    )
    normalization_length: int | None = Field(
        default=None, ge=1, le=100_000_000, description="tokens; required by normalization constant"
    )
    scale_logits: bool = Field(
        default=False,
        description="compute log-probabilities at the sampling temperature (TRL, verl) instead of 1 (ARENA)",
    )
    credit: CreditChoice = Field(
        default=GroupCreditSpec(),
        description="how a group's rewards become advantages: type group (the default: GRPO, RLOO, Dr. GRPO, "
        "REINFORCE), gdpo or information_gain",
    )
    reward: str = Field(default="reward", min_length=1, description="name of the reward to maximise")
    resamples: int = Field(
        default=0, ge=0, le=1000, description="maximum number of times to resample a group selected by credit.resample"
    )
    refills: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="if above 0, groups selected by credit.resample are dropped and replaced by further questions, "
        "at most this many times the update's questions (dynamic sampling: DAPO, section 3.2)",
        exclude_if=equal_to(0),
    )
    off_policy: bool = Field(
        default=False,
        description="sample the next update's rollouts before this update, and correct for it by importance weights",
    )
    evaluate_every: int = Field(
        default=0, ge=0, le=1_000_000, description="updates between evaluations; 0: only at the end"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if 0 < self.beta < SMALLEST_BETA:
            raise ValueError(f"beta {self.beta:g} has no effect; give 0 for no KL term, or at least {SMALLEST_BETA:g}")
        if self.deepspeed == "zero3":
            raise ValueError("deepspeed zero3 shards the weights, but the sampling engine needs all of them; use zero2")
        if self.mini_batches > self.questions:
            raise ValueError(f"mini_batches {self.mini_batches} is above questions {self.questions}")
        if (self.normalization == "constant") != (self.normalization_length is not None):
            raise ValueError("normalization constant and normalization_length go together; set both or neither")
        if self.scale_logits and self.off_policy:
            raise ValueError(
                "scale_logits needs the sampling weights, but off_policy trains newer ones; remove one of them"
            )
        if self.scale_logits and self.engine_correction is not None:
            raise ValueError(
                "engine_correction compares probabilities at temperature 1, which the engine reports, and scale_logits "
                "trains the policy at another; leave one out"
            )
        if isinstance(self.clip, GspoClip) and self.normalization != "sequence":
            raise ValueError(
                f"clip gspo compares whole trajectories, and normalization {self.normalization} weighs them by their "
                "length; set normalization to sequence"
            )
        if self.resamples and self.refills:
            raise ValueError(
                "resamples asks the same question again, and refills asks another instead; set one of them to 0"
            )
        self._check_credit()
        return self

    def _check_credit(self) -> None:
        credit = self.credit
        if not isinstance(credit, GroupCreditSpec):
            return
        # Under own, called trajectories have advantages even if the trained reward ties.
        if credit.baseline != "none" and credit.others != "own" and credit.mute_ties_of == self.reward:
            raise ValueError(
                f"credit.mute_ties_of {self.reward} is the trained reward, whose ties have no advantage anyway; leave "
                "it out, or name the outcome that the reward contains"
            )

    @property
    def steps_each(self) -> int:
        """Optimiser steps of an update."""
        return self.mini_batches * self.iterations
