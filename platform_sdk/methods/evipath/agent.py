"""EviPath's agent: a planner that sends sub-questions, and executors that search, select and answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from platform_sdk.agents import planner_messages as messages
from platform_sdk.agents.planner_messages import Medium, medium_of
from platform_sdk.agents.planner_rewards import rewards
from platform_sdk.agents.planner_worker import Answer, Ask, Limits, Malformed, PlannerWorker, Reading
from platform_sdk.agents.speaker import Decoding, Policy, Speaker
from platform_sdk.methods.evipath import prompts
from platform_sdk.methods.evipath.grammar import NOTHING_FOUND, parse_executor, parse_planner
from platform_sdk.methods.evipath.settings import AgentSpec, Role
from platform_sdk.methods.method import RunContext
from platform_sdk.records import Evidence, Question
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.rollout import SearchFunction


@dataclass(frozen=True)
class EviPathLanguage:
    """EviPath's prompts and grammar (see ``planner_worker.Language``)."""

    spec: AgentSpec
    medium: Medium

    unreadable = NOTHING_FOUND
    too_long = NOTHING_FOUND

    def planner(self, speaker: Speaker, question: Question, candidates: Sequence[str], role: str) -> Dialogue:
        opening = messages.planner_opening(question.text, candidates, self.medium)
        return speaker.dialogue(self._instruction("planner"), opening)

    def worker(self, speaker: Speaker, sub_question: str, evidence: Sequence[Evidence]) -> Dialogue:
        opening = messages.worker_opening(sub_question, evidence, self.medium)
        return speaker.dialogue(self._instruction("executor"), opening, evidence=evidence)

    def read_planner(self, text: str, candidates: int) -> Ask | Answer | Malformed:
        return parse_planner(text, self.medium, candidates=candidates, max_questions=self.spec.sub_questions)

    def read_worker(self, text: str, materials: int) -> Reading | Malformed:
        return parse_executor(text, materials=materials)

    def _instruction(self, role: Role) -> str:
        return prompts.instruction(self.spec.prompts, role, self.medium, max_questions=self.spec.sub_questions)


def evipath(
    run: RunContext[AgentSpec], policy: Policy, decoding: Decoding, seed_name: str, search: SearchFunction
) -> PlannerWorker:
    """Return the run's agent."""
    spec = run.agent
    return PlannerWorker(
        policy=policy,
        decoding=decoding,
        language=EviPathLanguage(spec, medium_of(run.environment)),
        limits=Limits(
            iterations=spec.iteration_limit,
            planner_tokens=spec.planner_tokens,
            worker_tokens=spec.executor_tokens,
            top_k=spec.top_k,
        ),
        search=search,
        score=rewards,
        corpus=run.searched_digest,
        seed=run.seed,
        seed_name=seed_name,
    )
