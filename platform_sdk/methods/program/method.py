"""Training of any program that speaks the OpenAI protocol, behind a gateway that records exact tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.config.pipeline import home
from platform_sdk.config.sampling import PROGRAM_RUNNER, EvaluationSpec
from platform_sdk.errors import UserError
from platform_sdk.gateway.programs import Program, function_command
from platform_sdk.gateway.server import Gateway
from platform_sdk.methods.method import Method, Resources, RunContext, open_search
from platform_sdk.methods.program.agent import Failures, ProgramAgent, measures, rewards
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.processes.commands import NO_IMAGE_HERE, fault_of, located
from platform_sdk.processes.launch import ProgramImage
from platform_sdk.records import Question, Rollout
from platform_sdk.retrieval.index import method_of
from platform_sdk.sampling.engine import SamplingParams

NO_LIMIT = 2**31
"""Prompt length where the recipe states none: the engine refuses what is too long for it."""


@dataclass(frozen=True)
class ProgramResources(Resources):
    """The search, and the open gateways: one for each tokenizer and distribution."""

    opened: ExitStack
    gateways: dict[tuple[int, SamplingParams], Gateway] = field(default_factory=dict)

    def gateway(self, tokenizer: Any, max_model_len: int, defaults: SamplingParams) -> Gateway:
        """Return the gateway for a policy's tokenizer and distribution; it is opened when it is first asked for."""
        key = id(tokenizer), defaults
        if key not in self.gateways:
            self.gateways[key] = self.opened.enter_context(Gateway(tokenizer, max_model_len, defaults))
        return self.gateways[key]


class ProgramMethod(Method[AgentSpec, EvaluationSpec, ProgramResources]):
    """A program of the user's, trained by GRPO on the F1 of its answers."""

    name = "program"
    agent_settings = AgentSpec
    evaluation_settings = EvaluationSpec
    shown_metrics = ("em", "f1", "calls", "searches", "evidence_recall", "answered")

    def check(self, run: RunContext[AgentSpec]) -> None:
        retrieval = method_of(run.environment, run.retrieval)
        if unknown := [name for name in retrieval.scope if name != "question_id"]:
            raise UserError(
                f"retrieval.method {retrieval.name}: a search there must name its {' and '.join(unknown)}, and a "
                "program gives a query alone; choose a method that searches by the query, e.g. passages"
            )

    def program_image(self, agent: Mapping[str, Any]) -> ProgramImage | None:
        spec = AgentSpec.model_validate(agent)
        return None if spec.image is None else ProgramImage(spec.image, serves=spec.command is None)

    @contextmanager
    def resources(self, run: RunContext[AgentSpec]) -> Iterator[ProgramResources]:
        spec = run.agent
        if spec.image is not None and PROGRAM_RUNNER not in os.environ:
            raise UserError(f"agent.image: {NO_IMAGE_HERE}")
        if spec.command is not None and spec.image is None and (fault := fault_of(located(spec.command, home()))):
            raise UserError(f"agent.command: {fault}")
        with open_search(run) as search, ExitStack() as opened:
            yield ProgramResources(search, opened)

    def agent(
        self,
        run: RunContext[AgentSpec],
        policy: Policy,
        seed_name: str,
        resources: ProgramResources,
        evaluation: EvaluationSpec | None = None,
    ) -> ProgramAgent:
        spec = run.agent
        decoding = run.decoding if evaluation is None else Decoding(evaluation.temperature, evaluation.top_p)
        defaults = SamplingParams(**vars(decoding), max_tokens=spec.max_tokens)
        length = run.sampling.engine.max_model_len or NO_LIMIT
        gateway = resources.gateway(policy.tokenizer, length, defaults)
        own_passages = method_of(run.environment, run.retrieval).name == "contexts"

        def told(question: Question) -> dict[str, Any]:
            passages = [passage.model_dump(mode="json") for passage in question.context] if own_passages else []
            return {"id": question.id, "question": question.text} | ({"passages": passages} if passages else {})

        return ProgramAgent(
            policy, decoding, run.searched_digest, run.seed, seed_name, spec, program_of(spec), gateway,
            resources.search, told, Failures(spec.failures),
        )  # fmt: skip

    def rewards(self, run: RunContext[AgentSpec], rollout: Rollout) -> Mapping[str, float]:
        return rewards(rollout)

    def measure(
        self, run: RunContext[AgentSpec], rollouts: Sequence[Rollout], evaluation: EvaluationSpec
    ) -> list[dict[str, float]]:
        return [measures(rollout) for rollout in rollouts]


def program_of(spec: AgentSpec) -> Program:
    """Return what a recipe's settings run. A command with an image runs there, by the runner of this job's pod."""
    if spec.image is not None:
        runner = os.environ[PROGRAM_RUNNER] if spec.command else ""
        return Program(spec.command or (), spec.url or "", runner, (), spec.seconds, spec.output_bytes)
    command = function_command(spec.function) if spec.function else located(spec.command or (), home())
    return Program(command, spec.url or "", "", spec.environment, spec.seconds, spec.output_bytes)


METHOD = ProgramMethod()
