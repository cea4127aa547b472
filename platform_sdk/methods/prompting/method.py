"""The prompting baselines as a method; a run evaluates and trains nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.methods.method import Method, Resources, RunContext
from platform_sdk.methods.prompting.agent import PromptedAgent, measures, rewards
from platform_sdk.methods.prompting.settings import AgentSpec
from platform_sdk.records import Rollout


class Prompting(Method[AgentSpec, EvaluationSpec, Resources]):
    """A model that answers by one of the published prompting strategies."""

    name = "prompting"
    agent_settings = AgentSpec
    evaluation_settings = EvaluationSpec
    shown_metrics = ("em", "f1", "searches", "evidence_recall", "tokens")

    def agent(
        self,
        run: RunContext[AgentSpec],
        policy: Policy,
        seed_name: str,
        resources: Resources,
        evaluation: EvaluationSpec | None = None,
    ) -> PromptedAgent:
        decoding = run.decoding_of(evaluation)
        return PromptedAgent(policy, decoding, run.searched_digest, run.seed, seed_name, run.agent, resources.search)

    def rewards(self, run: RunContext[AgentSpec], rollout: Rollout) -> Mapping[str, float]:
        return rewards(rollout)

    def measure(
        self, run: RunContext[AgentSpec], rollouts: Sequence[Rollout], evaluation: EvaluationSpec
    ) -> list[dict[str, float]]:
        return [measures(rollout, run.agent) for rollout in rollouts]


METHOD = Prompting()
