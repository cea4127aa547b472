"""ProGraph-R1 as a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.errors import UserError
from platform_sdk.methods.method import Method, Resources, RunContext
from platform_sdk.methods.prograph.agent import ProGraphAgent
from platform_sdk.methods.prograph.measures import measures
from platform_sdk.methods.prograph.rewards import rewards
from platform_sdk.methods.prograph.settings import AgentSpec
from platform_sdk.methods.prograph.step_credit import StepCredit
from platform_sdk.methods.prograph.step_progress import OPENING
from platform_sdk.records import Rollout
from platform_sdk.training.advantages import GRPO
from platform_sdk.training.credit import Credit


class ProGraph(Method[AgentSpec, EvaluationSpec, Resources]):
    """An agent that searches turn by turn, trained by GRPO with rewards for steps or only for the outcome."""

    name = "prograph"
    agent_settings = AgentSpec
    evaluation_settings = EvaluationSpec
    shown_metrics = ("em", "f1", "turns", "evidence_recall", "format")
    answer_opening = OPENING

    def agent(
        self,
        run: RunContext[AgentSpec],
        policy: Policy,
        seed_name: str,
        resources: Resources,
        evaluation: EvaluationSpec | None = None,
    ) -> ProGraphAgent:
        decoding = run.decoding_of(evaluation)
        return ProGraphAgent(policy, decoding, run.searched_digest, run.seed, seed_name, run.agent, resources.search)

    def rewards(self, run: RunContext[AgentSpec], rollout: Rollout) -> Mapping[str, float]:
        return rewards(rollout)

    def measure(
        self, run: RunContext[AgentSpec], rollouts: Sequence[Rollout], evaluation: EvaluationSpec
    ) -> list[dict[str, float]]:
        return [measures(rollout) for rollout in rollouts]

    def credit(self, run: RunContext[AgentSpec], online: OnlineSpec) -> Credit:
        if run.agent.credit is None:
            return super().credit(run, online)
        if online.credit != GRPO:
            raise UserError("agent.credit credits each step, and online.credit whole trajectories; set one of them")
        return StepCredit(run.agent.credit, online.reward, run.agent, run.decoding)


METHOD = ProGraph()
