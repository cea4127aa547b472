"""A method of its own, known by this module's name: its step either asks the model or writes down what it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.methods.method import (
    Method,
    Resources,
    RunContext,
    Sampling,
    SamplingOutcome,
    SamplingStep,
    SelectionOutcome,
)
from platform_sdk.records import Rollout
from platform_sdk.sampling.rollout import no_search
from platform_sdk.sampling.sampler import RolloutAgent


class Struct(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Agent(Struct):
    form: str


class Settings(Struct):
    rounds: int


class Carry(Struct):
    """Number of questions that earlier rounds have taken up."""

    taken: int = 0


class Writing(SamplingStep[Agent, Settings, Carry]):
    settings = Settings
    carry = Carry

    def asks_model(self, run: RunContext[Agent], settings: Settings) -> bool:
        return run.agent.form != "direct"

    def sample(self, round: Sampling[Agent, Settings, Carry]) -> SamplingOutcome[Carry]:
        raise AssertionError("the launch of steps is tested, not their work")

    def select(
        self, settings: Settings, carry: Carry, rollouts: Sequence[Rollout], candidates: Sequence[Rollout]
    ) -> SelectionOutcome:
        return SelectionOutcome(candidates)


class Toy(Method[Agent, EvaluationSpec, Resources]):
    name = "toy"
    agent_settings = Agent
    evaluation_settings = EvaluationSpec
    steps: ClassVar = {"writing": Writing()}

    @contextmanager
    def resources(self, run: RunContext[Agent]) -> Iterator[Resources]:
        yield Resources(no_search)

    def agent(
        self,
        run: RunContext[Agent],
        policy: Policy,
        seed_name: str,
        resources: Resources,
        evaluation: EvaluationSpec | None = None,
    ) -> RolloutAgent:
        raise AssertionError("the launch of steps is tested, not their work")

    def rewards(self, run: RunContext[Agent], rollout: Rollout) -> Mapping[str, float]:
        return {}

    def measure(self, run: RunContext[Agent], rollouts: Sequence[Rollout], evaluation: Any) -> list[dict[str, float]]:
        return [{} for _ in rollouts]


METHOD = Toy()
