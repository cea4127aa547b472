"""Training of any program that uses the OpenAI API, through a gateway that records exact tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.credit import NO_ANSWER_OPENING, InformationGainSpec
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.errors import UserError
from platform_sdk.methods.method import Method, RunContext
from platform_sdk.methods.program.agent import ProgramAgent, measures, rewards
from platform_sdk.methods.program.launch import ProgramResources, open_resources, program_agent
from platform_sdk.methods.program.sessions import RecordedSessions
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.methods.selection import Iteration
from platform_sdk.processes.launch import ProgramImage
from platform_sdk.records import Rollout
from platform_sdk.training.credit import Credit


class ProgramMethod(Method[AgentSpec, EvaluationSpec, ProgramResources]):
    """A user's program, trained online by GRPO, by selection, or on another model's sessions."""

    name = "program"
    agent_settings = AgentSpec
    evaluation_settings = EvaluationSpec
    steps: ClassVar = {"iteration": Iteration(program_agent, open_resources), "sessions": RecordedSessions()}
    shown_metrics = ("em", "f1", "calls", "searches", "evidence_recall", "answered")

    def program_image(self, agent: Mapping[str, Any]) -> ProgramImage | None:
        spec = AgentSpec.model_validate(agent)
        return None if spec.image is None else ProgramImage(spec.image, serves=spec.command is None)

    @contextmanager
    def resources(self, run: RunContext[AgentSpec]) -> Iterator[ProgramResources]:
        with open_resources(run) as opened:
            yield opened

    def agent(
        self,
        run: RunContext[AgentSpec],
        policy: Policy,
        seed_name: str,
        resources: ProgramResources,
        evaluation: EvaluationSpec | None = None,
    ) -> ProgramAgent:
        return program_agent(run, policy, run.decoding_of(evaluation), seed_name, resources)

    def rewards(self, run: RunContext[AgentSpec], rollout: Rollout) -> Mapping[str, float]:
        return rewards(run.agent, rollout)

    def measure(
        self, run: RunContext[AgentSpec], rollouts: Sequence[Rollout], evaluation: EvaluationSpec
    ) -> list[dict[str, float]]:
        return [measures(rollout) for rollout in rollouts]

    def turn_tokens(self, agent: AgentSpec) -> int | None:
        return agent.max_tokens  # the stop strings come in the program's requests

    def opening(self, agent: AgentSpec) -> str | None:
        return agent.answer_opening

    def credit(self, run: RunContext[AgentSpec], online: OnlineSpec) -> Credit:
        if isinstance(online.credit, InformationGainSpec) and run.agent.answer_opening is None:
            raise UserError(f"online.credit.type {NO_ANSWER_OPENING}")
        return super().credit(run, online)


METHOD = ProgramMethod()
