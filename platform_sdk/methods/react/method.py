"""ReAct as a method (Yao et al., 2023, arXiv 2210.03629), trained on outcomes as Search-R1 is (arXiv 2503.09516)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from platform_sdk.agents.planner_rewards import rewards
from platform_sdk.agents.speaker import Policy
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.methods.method import Method, Resources, RunContext, open_search
from platform_sdk.methods.react.agent import ReactAgent, measures, stops
from platform_sdk.methods.react.settings import AgentSpec
from platform_sdk.records import Rollout
from platform_sdk.tools.base import Tool
from platform_sdk.tools.load import open_tools


@dataclass(frozen=True)
class ReactResources(Resources):
    """The search, and the opened tools by name."""

    tools: Mapping[str, Tool]


class React(Method[AgentSpec, EvaluationSpec, ReactResources]):
    """An agent that calls tools turn by turn, trained by GRPO on the F1 of its answers."""

    name = "react"
    agent_settings = AgentSpec
    evaluation_settings = EvaluationSpec
    shown_metrics = ("em", "f1", "tool_calls", "evidence_recall", "well_formed")
    answer_opening = "<answer>"

    @contextmanager
    def resources(self, run: RunContext[AgentSpec]) -> Iterator[ReactResources]:
        with open_search(run) as search, open_tools(run.agent.tools, search) as tools:
            yield ReactResources(search, tools)

    def agent(
        self,
        run: RunContext[AgentSpec],
        policy: Policy,
        seed_name: str,
        resources: ReactResources,
        evaluation: EvaluationSpec | None = None,
    ) -> ReactAgent:
        decoding = run.decoding_of(evaluation)
        return ReactAgent(policy, decoding, run.searched_digest, run.seed, seed_name, run.agent, resources.tools)

    def stops(self, agent: AgentSpec) -> tuple[str, ...]:
        return stops(agent)

    def rewards(self, run: RunContext[AgentSpec], rollout: Rollout) -> Mapping[str, float]:
        return rewards(rollout)

    def measure(
        self, run: RunContext[AgentSpec], rollouts: Sequence[Rollout], evaluation: EvaluationSpec
    ) -> list[dict[str, float]]:
        return [measures(rollout) for rollout in rollouts]


METHOD = React()
