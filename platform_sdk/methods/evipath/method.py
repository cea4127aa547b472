"""EviPath as a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from platform_sdk.agents.planner_messages import medium_of
from platform_sdk.agents.planner_rewards import measures, rewards
from platform_sdk.agents.planner_worker import PlannerWorker
from platform_sdk.agents.speaker import Policy
from platform_sdk.errors import UserError
from platform_sdk.methods.evipath.agent import evipath
from platform_sdk.methods.evipath.learning import Dialogues
from platform_sdk.methods.evipath.rules import RuleSynthesis
from platform_sdk.methods.evipath.settings import PROMPTS_WITHOUT_PATHS, AgentSpec, EvaluationSettings
from platform_sdk.methods.evipath.teacher import ModelSynthesis
from platform_sdk.methods.method import Method, Resources, RunContext
from platform_sdk.methods.selection import Iteration
from platform_sdk.records import Rollout


class EviPath(Method[AgentSpec, EvaluationSettings, Resources]):
    """Planner and executors, fine-tuned on reasoning paths synthesised from gold evidence."""

    name = "evipath"
    agent_settings = AgentSpec
    evaluation_settings = EvaluationSettings
    roles = ("planner", "worker")
    steps: ClassVar = {
        "rules": RuleSynthesis(),
        "llm": ModelSynthesis(),
        "dialogues": Dialogues(),
        "iteration": Iteration(evipath),
    }
    shown_metrics = ("em", "f1", "evidence_recall", "well_formed")
    answer_opening = "<answer>"

    def agent(
        self,
        run: RunContext[AgentSpec],
        policy: Policy,
        seed_name: str,
        resources: Resources,
        evaluation: EvaluationSettings | None = None,
    ) -> PlannerWorker:
        shown = () if evaluation is None else evaluation.demonstrate
        if shown and run.agent.prompts == "compact":
            raise UserError(f"evaluation.demonstrate: {PROMPTS_WITHOUT_PATHS}")
        decoding = run.decoding_of(evaluation)
        return evipath(run, policy, decoding, seed_name, resources.search, demonstrated=shown)

    def rewards(self, run: RunContext[AgentSpec], rollout: Rollout) -> Mapping[str, float]:
        return rewards(rollout)

    def measure(
        self, run: RunContext[AgentSpec], rollouts: Sequence[Rollout], evaluation: EvaluationSettings
    ) -> list[dict[str, float]]:
        return [measures(medium_of(run.environment), rollout) for rollout in rollouts]


METHOD = EviPath()
