"""The prompting baselines as a method; a run evaluates and trains nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.errors import UserError
from platform_sdk.methods.method import Method, Resources, RunContext, check_searched_by_query
from platform_sdk.methods.prompting.agent import PromptedAgent, measures, rewards
from platform_sdk.methods.prompting.settings import SEARCHING, AgentSpec
from platform_sdk.records import Rollout
from platform_sdk.retrieval.index import method_of


class Prompting(Method[AgentSpec, EvaluationSpec, Resources]):
    """A model that answers by one of the published prompting strategies."""

    name = "prompting"
    agent_settings = AgentSpec
    evaluation_settings = EvaluationSpec
    shown_metrics = ("em", "f1", "searches", "evidence_recall", "tokens")

    def check(self, run: RunContext[AgentSpec]) -> None:
        retrieval, strategy = method_of(run.environment, run.retrieval), run.agent.strategy
        check_searched_by_query(run, f"the strategy {strategy}")
        if (strategy in SEARCHING) == (retrieval.name == "none"):
            raise UserError(
                f"agent.strategy {strategy}: searches, but retrieval.method none has nothing to search; choose another "
                "method"
                if strategy in SEARCHING
                else f"agent.strategy {strategy}: never searches; set retrieval.method to none"
            )

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
