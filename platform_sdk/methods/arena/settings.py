"""Settings of ARENA. Defaults are the paper's values, if it gives them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from platform_sdk.agents.own_reward import RewardName
from platform_sdk.config.judge import NO_VERDICT, JudgeSpec
from platform_sdk.config.retrieval import Searched
from platform_sdk.config.sampling import EvaluationSpec, SamplingSpec
from platform_sdk.config.source import Fault
from platform_sdk.config.struct import Struct, equal_to


class Weights(Struct):
    """Weights of the components in the sum (ARENA, section 3.3: 1 each, so a reward lies in 0 to 13)."""

    format: float = Field(1.0, ge=0, le=1_000_000, description="weight of the format reward (0 or 1)")
    accuracy: float = Field(1.0, ge=0, le=1_000_000, description="weight of the reward for a right answer (0 to 1)")
    relevance: float = Field(
        1.0, ge=0, le=1_000_000, description="weight of the relevance reward, for cited gold passages (0 to 1)"
    )
    bonus: float = Field(1.0, ge=0, le=1_000_000, description="weight of the bonus for all three (0 or 10)")


class ExtraReward(Struct):
    """A user-defined reward: a function from a rollout to a number, added to the sum with a weight."""

    function: RewardName = Field(
        description="module:function, takes a platform_sdk.records.Rollout and returns a float"
    )
    weight: float = Field(1.0, description="weight in the sum; negative: a penalty")


class RewardSpec(Struct):
    """The reward (ARENA, section 3.3)."""

    format: Literal["strict", "compat"] = Field("strict", description="compat: the published code's pattern")
    accuracy: Literal["em", "f1", "judge"] = Field(
        "em", description="comparison of the answer with the gold answers: exact, by shared words, or by a judge model"
    )
    judge: JudgeSpec | None = Field(None, description="the judge model, for accuracy judge")
    weights: Weights = Field(Weights(), description="weight of each component in the sum")
    extra: dict[str, ExtraReward] = Field(
        default_factory=dict, description="further rewards by name, each of one function"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.accuracy == "judge") != (self.judge is not None):
            raise ValueError("judge: {url, model} must be given for accuracy judge, and only for it")
        if taken := sorted((NAMED | METRICS) & self.extra.keys()):
            raise ValueError(f"extra: {', '.join(taken)} is the name of a reward or metric already; choose another")
        return self


NAMED = frozenset({"format", "accuracy", "relevance", "bonus", "reward", "em", "f1"})
"""Names of the rewards of every rollout."""
METRICS = frozenset({
    "prec", "recall", "judge", NO_VERDICT, "arena_em", "arena_f1", "arena_judge", "evidence_precision",
    "evidence_recall", "answered", "tokens",
})  # fmt: skip
"""Names of what an evaluation measures of every rollout besides its rewards."""


class AgentSpec(Struct):
    """The generator and its rewards."""

    form: Literal["three_part", "think", "direct"] = Field(
        "three_part",
        description="ARENA's sections; think: the naive baseline's <think> and <answer>; direct: the answer alone",
    )
    strategy: Literal["single", "sure", "self_ask"] = Field(
        "single", description="one response, or a prompting baseline of several: SuRe or self-ask"
    )
    prompts: Literal["standard", "compact"] = Field("standard", description="compact: for very small models")
    numbers: Literal["passages", "sentences"] = Field(
        "passages",
        exclude_if=equal_to("passages"),
        description="sentences: a passage's number is also after each of its sentences, so that very small models cite "
        "the passage that they quote",
    )
    demonstrate: bool = Field(False, description="show a worked example before the question, for small models")
    max_tokens: int = Field(256, ge=1, le=1_000_000, description="maximum tokens of a response while training")
    candidates: int = Field(2, ge=2, le=100, description="sure: number of candidate answers")
    follow_ups: int = Field(4, ge=1, le=1000, description="self_ask: maximum questions that the model asks itself")
    rewards: RewardSpec = Field(RewardSpec(), description="the reward of a response")

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Return the names of a rollout's rewards, for the settings that name one."""
        return (*sorted(NAMED), *([NO_VERDICT] if self.rewards.judge else []), *self.rewards.extra)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.strategy != "single" and self.form != "direct":
            raise ValueError(f"strategy {self.strategy} ends with the answer alone: set form: direct")
        if self.numbers == "sentences" and self.form != "three_part":
            raise ValueError(f"numbers: sentences is for the form three_part, since {self.form} cites no passages")
        if self.strategy != "single" and self.demonstrate:
            raise ValueError(f"strategy {self.strategy} has its own prompts: remove demonstrate")
        return self

    def misfit(self, environment: str, searched: Searched) -> Fault | None:
        """Return the fault if the environment does not fit, else None."""
        if environment not in ("distractor", "closed-book"):
            return Fault(("environment",), f"{environment} is not for ARENA, whose passages are given; use distractor")
        if environment == "closed-book" and self.form != "direct":
            return Fault(("agent", "form"), "environment closed-book has no passages to choose from: set it to direct")
        if environment == "closed-book" and self.demonstrate:
            return Fault(("agent", "demonstrate"), "environment closed-book has no worked example: remove it")
        return None


class SamplingSettings(SamplingSpec):
    """Settings of sampling rollouts: the engine and the policy's distribution."""

    temperature: float = Field(
        0.9,
        ge=0,
        le=100,
        description="sampling temperature; 1: the model's probabilities, 0: greedy",
    )


class EvaluationSettings(EvaluationSpec):
    """An evaluation run: one response to every evaluation question."""

    temperature: float = Field(
        0.9,
        ge=0,
        le=100,
        description="sampling temperature of the answers, the paper's value for rollouts; 0: greedy",
    )
    greedy: bool = Field(True, description="also answer greedily: em_greedy, f1_greedy")
    max_tokens: int = Field(1024, ge=1, le=1_000_000, description="maximum tokens of a response")
    judge: JudgeSpec | None = Field(None, description="also score the answers with this judge model")


class DemonstrationSpec(Struct):
    """Data of a supervised baseline (ARENA, appendix D); the agent's form selects the baseline."""

    questions: int | None = Field(None, ge=1, le=10_000_000, description="number of training questions; null: all")
    explanations: Literal["sampled", "quoted"] = Field(
        "sampled",
        exclude_if=equal_to("sampled"),
        description="three_part: sampled from the model, or by rule: the sentences of the gold passages that support "
        "the answer, for models too small to explain",
    )
    reasoning_tokens: int = Field(
        512, ge=1, le=1_000_000, description="three_part: maximum tokens of a sampled explanation"
    )
