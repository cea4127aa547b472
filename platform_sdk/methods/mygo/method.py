"""Mujica and MyGO as a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from platform_sdk.agents.planner_messages import medium_of
from platform_sdk.agents.planner_rewards import measures, worker_reward
from platform_sdk.agents.planner_worker import PlannerWorker
from platform_sdk.agents.speaker import Policy
from platform_sdk.errors import UserError
from platform_sdk.methods.method import Method, Resources, RunContext
from platform_sdk.methods.mygo.agent import mujica, scored
from platform_sdk.methods.mygo.sampling import Warmup
from platform_sdk.methods.mygo.settings import AgentSpec, EvaluationSettings
from platform_sdk.methods.selection import Iteration
from platform_sdk.records import Rollout, Trajectory
from platform_sdk.sampling.pairs import models_of


class MyGO(Method[AgentSpec, EvaluationSettings, Resources]):
    """Planner and workers, trained by selecting near-optimal trajectories; under GRPO the baseline it is compared with.

    Under GRPO the reward of a rollout is the planner's; its advantage goes to the agent's tokens in the planner's
    dialogue and in those of its workers (Mujica-MyGO, section 4), unless ``online.credit.others`` is set otherwise.
    """

    name = "mygo"
    agent_settings = AgentSpec
    evaluation_settings = EvaluationSettings
    roles = ("planner", "worker")
    steps: ClassVar = {"warmup": Warmup(), "iteration": Iteration(mujica)}
    shown_metrics = ("em", "f1", "evidence_recall", "well_formed")
    answer_opening = "<answer>"

    def check_policy(self, run: RunContext[AgentSpec], model: str) -> None:
        if models_of(model) and not run.agent.split:
            raise UserError("agent.split is false, and a single agent does not use worker_model; leave one of them out")

    def agent(
        self,
        run: RunContext[AgentSpec],
        policy: Policy,
        seed_name: str,
        resources: Resources,
        evaluation: EvaluationSettings | None = None,
    ) -> PlannerWorker:
        demonstrate = evaluation is not None and evaluation.demonstrate
        decoding = run.decoding_of(evaluation)
        return mujica(run, policy, decoding, seed_name, resources.search, demonstrate=demonstrate)

    def rewards(self, run: RunContext[AgentSpec], rollout: Rollout) -> Mapping[str, float]:
        return scored(run.agent, rollout)

    def measure(
        self, run: RunContext[AgentSpec], rollouts: Sequence[Rollout], evaluation: EvaluationSettings
    ) -> list[dict[str, float]]:
        return [measures(medium_of(run.environment), rollout) for rollout in rollouts]

    def called_reward(self, run: RunContext[AgentSpec], rollout: Rollout, trajectory: Trajectory) -> float | None:
        return worker_reward(medium_of(run.environment), rollout, trajectory)


METHOD = MyGO()
