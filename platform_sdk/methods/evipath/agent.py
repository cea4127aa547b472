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
from platform_sdk.methods.evipath.demonstrations import demonstrations
from platform_sdk.methods.evipath.dialogues import executor_chats, planner_chat
from platform_sdk.methods.evipath.grammar import NOTHING_FOUND, parse_executor, parse_planner
from platform_sdk.methods.evipath.records import Example
from platform_sdk.methods.evipath.settings import AgentSpec, Role
from platform_sdk.methods.method import RunContext
from platform_sdk.records import Evidence, Question
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.rollout import SearchFunction

_EXECUTOR_TURNS = 4  # of the worked paths: two questions and their readings


@dataclass(frozen=True)
class EviPathLanguage:
    """EviPath's prompts and grammar (see ``planner_worker.Language``).

    Attributes:
        demonstrated: roles with worked paths in their prompts. Compact prompts have none: very small models know the
            format only from training, and lack the vocabulary of the paths.
        tell_answer: the planner's questions are followed by their answers (a teacher's answer-only mode).
    """

    spec: AgentSpec
    medium: Medium
    demonstrated: Sequence[Role] = ()
    tell_answer: bool = False

    unreadable = NOTHING_FOUND
    too_long = NOTHING_FOUND

    def planner(self, speaker: Speaker, question: Question, candidates: Sequence[str], role: str) -> Dialogue:
        shown: list[str] = []
        for path in self.worked("planner"):
            opening, *rest = planner_chat(path, "standard", self.spec.sub_questions).turns
            shown += [self._hinted(opening, path.answer), *rest]
        opening = messages.planner_opening(question.text, candidates, self.medium)
        return speaker.dialogue(self._instruction("planner"), self._hinted(opening, question.answers[0]), shown)

    def worker(self, speaker: Speaker, sub_question: str, evidence: Sequence[Evidence]) -> Dialogue:
        shown = [text for path in self.worked("executor") for chat in executor_chats(path, "standard")
                 for text in chat.turns]  # fmt: skip
        opening = messages.worker_opening(sub_question, evidence, self.medium)
        return speaker.dialogue(self._instruction("executor"), opening, shown[-_EXECUTOR_TURNS:], evidence)

    def worked(self, role: Role) -> Sequence[Example]:
        """Return the worked paths of a role's prompt."""
        return demonstrations(self.medium) if role in self.demonstrated and self.spec.prompts == "standard" else ()

    def _hinted(self, opening: str, answer: str) -> str:
        return f"{opening}\nAnswer : {answer}" if self.tell_answer else opening

    def read_planner(self, text: str, candidates: int) -> Ask | Answer | Malformed:
        return parse_planner(text, self.medium, candidates=candidates, max_questions=self.spec.sub_questions)

    def read_worker(self, text: str, materials: int) -> Reading | Malformed:
        return parse_executor(text, materials=materials)

    def _instruction(self, role: Role) -> str:
        return prompts.instruction(self.spec.prompts, role, self.medium, max_questions=self.spec.sub_questions)


def evipath(
    run: RunContext[AgentSpec],
    policy: Policy,
    decoding: Decoding,
    seed_name: str,
    search: SearchFunction,
    *,
    demonstrated: Sequence[Role] = (),
    tell_answer: bool = False,
) -> PlannerWorker:
    """Return the run's agent; see ``EviPathLanguage`` for the last two."""
    spec = run.agent
    return PlannerWorker(
        policy=policy,
        decoding=decoding,
        language=EviPathLanguage(spec, medium_of(run.environment), demonstrated, tell_answer),
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
