"""An evaluated agent that answers every question twice: as the policy samples, and with its most probable tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.methods.method import AnyMethod, RunContext
from platform_sdk.records import Question, Rollout
from platform_sdk.sampling.rollout import Agent
from platform_sdk.sampling.sampler import RolloutAgent


@dataclass(frozen=True)
class SampledAndGreedy:
    """An agent whose attempt 0 is sampled, and whose attempt 1 takes the most probable tokens."""

    sampled: RolloutAgent
    greedy: RolloutAgent

    @property
    def weights(self) -> str:
        return self.sampled.weights

    @property
    def corpus(self) -> str:
        return self.sampled.corpus

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        return (self.sampled, self.greedy)[attempt].rollout(question, attempt)


def evaluated_agent(
    method: AnyMethod, run: RunContext[Any], policy: Policy, seed_name: str, resources: Any, evaluation: EvaluationSpec
) -> RolloutAgent:
    """Return the agent for an evaluation: it samples with its settings, and also greedily if ``evaluation.both``."""
    sampled = method.agent(run, policy, seed_name, resources, evaluation)
    if not evaluation.both:
        return sampled
    likeliest = evaluation.model_copy(update={"temperature": 0.0})
    return SampledAndGreedy(sampled, method.agent(run, policy, seed_name, resources, likeliest))
