"""Mujica: a planner that asks sub-questions and workers that read (Mujica-MyGO, section 2.2), with our own prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from platform_sdk.agents import planner_messages as messages
from platform_sdk.agents.own_reward import own_reward
from platform_sdk.agents.planner_messages import Medium, medium_of
from platform_sdk.agents.planner_rewards import rewards
from platform_sdk.agents.planner_worker import Answer, Ask, Limits, Malformed, PlannerWorker, Reading
from platform_sdk.agents.speaker import Decoding, Policy, Speaker
from platform_sdk.methods.method import RunContext
from platform_sdk.methods.mygo import prompts
from platform_sdk.methods.mygo.grammar import parse_planner, parse_worker
from platform_sdk.methods.mygo.settings import AgentSpec
from platform_sdk.records import Evidence, Question, Rollout, Trajectory
from platform_sdk.sampling.dialogue import Dialogue, with_instruction
from platform_sdk.sampling.rollout import SearchFunction


def scored(spec: AgentSpec, rollout: Rollout) -> dict[str, float]:
    """Return a rollout's named rewards, including ``own`` if the recipe names a function."""
    found = rewards(rollout)
    if spec.reward is None:
        return found
    return found | {"own": own_reward(spec.reward, rollout.model_copy(update={"rewards": found}))}


@dataclass(frozen=True)
class MujicaLanguage:
    """Mujica's prompts and grammar (see ``planner_worker.Language``), with worked examples if ``demonstrate``."""

    spec: AgentSpec
    medium: Medium
    demonstrate: bool

    unreadable = "Error : the assistant's reply could not be read ."
    too_long = "Error : the materials are too long to read ."

    def planner(self, speaker: Speaker, question: Question, candidates: Sequence[str], role: str) -> Dialogue:
        return self._open(speaker, role, messages.planner_opening(question.text, candidates, self.medium))

    def worker(self, speaker: Speaker, sub_question: str, evidence: Sequence[Evidence]) -> Dialogue:
        return self._open(speaker, "worker", messages.worker_opening(sub_question, evidence, self.medium), evidence)

    def _open(self, speaker: Speaker, role: str, opening: str, evidence: Sequence[Evidence] = ()) -> Dialogue:
        prompt = self._prompt(role)
        system, turns = prompt.system(demonstrate=self.demonstrate), prompt.turns(demonstrate=self.demonstrate)
        return speaker.dialogue(system, opening, turns, evidence)

    def read_planner(self, text: str, candidates: int) -> Ask | Answer | Malformed:
        return parse_planner(text, self.medium, candidates=candidates, max_questions=self.spec.max_questions)

    def read_worker(self, text: str, materials: int) -> Reading | Malformed:
        return parse_worker(text, self.medium, materials=materials)

    def undemonstrated(self, tokenizer: Any, rollout: Rollout) -> Rollout:
        """Return the rollout with prompts without worked examples, for the warm-up's training.

        The warm-up makes the examples unnecessary: the policy learns its responses from the bare prompts that all later
        sampling uses (Mujica-MyGO, section 4.2).
        """

        def bare(trajectory: Trajectory) -> Trajectory:
            return with_instruction(trajectory, tokenizer, self._prompt(trajectory.role).system(demonstrate=False))

        return rollout.model_copy(update={"main": bare(rollout.main), "others": tuple(map(bare, rollout.others))})

    def _prompt(self, role: str) -> prompts.RolePrompt:
        max_questions = 1 if role == "worker" else self.spec.max_questions
        return prompts.role_prompt(self.spec.prompts, role, self.medium, max_questions=max_questions)


def mujica(
    run: RunContext[AgentSpec],
    policy: Policy,
    decoding: Decoding,
    seed_name: str,
    search: SearchFunction,
    *,
    demonstrate: bool = False,
) -> PlannerWorker:
    """Return the run's agent."""
    spec = run.agent
    return PlannerWorker(
        policy=policy,
        decoding=decoding,
        language=MujicaLanguage(spec, medium_of(run.environment), demonstrate),
        limits=Limits(
            iterations=spec.iteration_limit,
            planner_tokens=spec.planner_tokens,
            worker_tokens=spec.worker_tokens,
            top_k=spec.top_k,
            split=spec.split,
        ),
        search=search,
        score=partial(scored, spec),
        corpus=run.searched_digest,
        seed=run.seed,
        seed_name=seed_name,
    )
