"""Resources of a program's attempts in a process: the search, and gateways for the policies that it samples from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.config.pipeline import home
from platform_sdk.config.sampling import PROGRAM_RUNNER
from platform_sdk.errors import UserError
from platform_sdk.gateway.connections import CONNECTIONS
from platform_sdk.gateway.programs import Program, function_command
from platform_sdk.gateway.server import Gateway
from platform_sdk.methods.method import Resources, RunContext, open_search
from platform_sdk.methods.program.agent import Failures, ProgramAgent
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.processes.commands import NO_IMAGE_HERE, fault_of, located
from platform_sdk.retrieval.index import method_of
from platform_sdk.sampling.engine import SamplingParams

NO_LIMIT = 2**31
"""Prompt length if the recipe sets none: the engine rejects prompts that are too long for it."""


@dataclass(frozen=True)
class ProgramResources(Resources):
    """The search, and the open gateways: one for each tokenizer and distribution."""

    opened: ExitStack
    gateways: dict[tuple[int, SamplingParams], Gateway] = field(default_factory=dict)

    def gateway(self, tokenizer: Any, max_model_len: int, defaults: SamplingParams, connections: int) -> Gateway:
        """Return the gateway for a policy's tokenizer and distribution; it is opened when it is first asked for."""
        key = id(tokenizer), defaults
        if key not in self.gateways:
            gateway = Gateway(tokenizer, max_model_len, defaults, connections=connections)
            self.gateways[key] = self.opened.enter_context(gateway)
        return self.gateways[key]


@contextmanager
def open_resources(run: RunContext[AgentSpec]) -> Iterator[ProgramResources]:
    """Open the search; gateways are opened when they are needed.

    Raises:
        UserError: the command does not exist or is not executable, or the program has an image outside of a job.
    """
    spec = run.agent
    if spec.image is not None and PROGRAM_RUNNER not in os.environ:
        raise UserError(f"agent.image: {NO_IMAGE_HERE}")
    if spec.command is not None and spec.image is None and (fault := fault_of(located(spec.command, home()))):
        raise UserError(f"agent.command: {fault}")
    with open_search(run) as search, ExitStack() as opened:
        yield ProgramResources(search, opened)


def program_agent(
    run: RunContext[AgentSpec], policy: Policy, decoding: Decoding, seed_name: str, resources: ProgramResources
) -> ProgramAgent:
    """Return the run's agent."""
    spec = run.agent
    defaults = SamplingParams(**vars(decoding), max_tokens=spec.max_tokens)
    engine = run.sampling.engine
    # A call holds its connection until it is answered.
    connections = max(CONNECTIONS, 2 * engine.live * spec.concurrent)
    gateway = resources.gateway(policy.tokenizer, engine.max_model_len or NO_LIMIT, defaults, connections)
    gives_passages = method_of(run.environment, run.retrieval).name == "contexts"
    return ProgramAgent(
        policy, decoding, run.searched_digest, run.seed, seed_name, spec, program_of(spec), gateway, resources.search,
        gives_passages, Failures(spec.failures),
    )  # fmt: skip


def program_of(spec: AgentSpec) -> Program:
    """Return the program of a recipe's settings. The pod's runner runs a command with an image in that image."""
    if spec.image is not None:
        runner = os.environ[PROGRAM_RUNNER] if spec.command else ""
        return Program(spec.command or (), spec.url or "", runner, (), spec.seconds, spec.output_bytes)
    command = function_command(spec.function) if spec.function else located(spec.command or (), home())
    return Program(command, spec.url or "", "", spec.environment, spec.seconds, spec.output_bytes)
