"""The generator: passages in, one response that names its evidence (ARENA, section 3.1).

A rollout is one trajectory of role ``agent``. Its evidence is the question's passages in their order; ``selected`` are
the passages that the response names. The prompting baselines add further trajectories (``strategies``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from platform_sdk.agents.speaker import Policy, PolicyAgent, Speaker
from platform_sdk.errors import UserError
from platform_sdk.methods.arena import prompts
from platform_sdk.methods.arena.grammar import parse, well_formed, without_thoughts
from platform_sdk.methods.arena.rewards import rewards
from platform_sdk.methods.arena.settings import AgentSpec, EvaluationSettings
from platform_sdk.methods.arena.strategies import Conversation, self_ask, sure
from platform_sdk.methods.method import Part, RunContext
from platform_sdk.records import Passage, Question, Rollout, given_evidence
from platform_sdk.run_dir import RunDir
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.rollout import Agent, Call

if TYPE_CHECKING:
    from platform_sdk.evaluation.judge import Judge, Verdict

DISORDER = "the sections do not stand in their order with nothing else around them"


@dataclass(frozen=True)
class Generator(PolicyAgent):
    """The generator; with ``judge``, an LLM judge decides the accuracy of each answer."""

    spec: AgentSpec
    environment: str
    max_tokens: int
    judge: Judge | None = None

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """One attempt at a question; returns the scored rollout."""
        speaker = self.speaker(question, attempt, self.max_tokens)
        match self.spec.strategy:
            case "single":
                spoken = yield from self._respond(speaker, question)
            case "sure":
                spoken = yield from sure(speaker, question, self._passages(question), self.spec)
            case "self_ask":
                spoken = yield from self_ask(speaker, question, self._passages(question), self.spec)
        rollout = self.recorded(question, attempt, speaker.seed, spoken.trajectory, spoken.others, spoken.outcome)
        verdict: Verdict | None = None
        if self.judge is not None:
            [verdict] = yield Call(self.judge.verdicts, ((question.text, question.answers, rollout.main.answer),))
        return rollout.model_copy(update={"rewards": rewards(rollout, self.spec, verdict)})

    def prompted(self, question: Question) -> Dialogue:
        """Return the dialogue that asks for a single response."""
        passages = self._passages(question)
        return Dialogue(
            self.policy.tokenizer,
            prompts.instruction(self.spec.prompts, self.spec.form, passages=bool(passages)),
            prompts.opening(question.text, passages, self.spec.prompts, self.spec.numbers),
            prompts.example(self.spec.prompts, self.spec.form, self.spec.numbers) if self.spec.demonstrate else (),
            given_evidence(passages),
        )

    def read(self, dialogue: Dialogue, question: Question, text: str) -> Conversation:
        """Read a single response, the last turn of the dialogue."""
        passages, form = self._passages(question), self.spec.form
        text = without_thoughts(text, form)
        if not well_formed(text, form, strict=self.spec.rewards.format == "strict"):
            dialogue.note_malformed(DISORDER)
        response = parse(text, form)
        selected = tuple(n - 1 for n in sorted(response.relevance or ()) if 1 <= n <= len(passages))
        trajectory = dialogue.trajectory("agent", "agent", selected=selected, answer=response.answer)
        return Conversation(trajectory, outcome="iteration_limit" if response.answer is None else "answered")

    def _respond(self, speaker: Speaker, question: Question) -> Agent[Conversation]:
        dialogue = self.prompted(question)
        reply = yield from speaker.reply(dialogue, "response")
        if reply is not None:
            return self.read(dialogue, question, reply.text)
        return Conversation(dialogue.trajectory("agent", "agent"), outcome="context_limit")

    def _passages(self, question: Question) -> tuple[Passage, ...]:
        return question.context if self.environment == "distractor" else ()


def generator(
    run: RunContext[AgentSpec],
    policy: Policy,
    seed_name: str,
    judge: Judge | None = None,
    evaluation: EvaluationSettings | None = None,
) -> Generator:
    """Return the run's agent with its sampling settings for training or for evaluation."""
    max_tokens = run.agent.max_tokens if evaluation is None else evaluation.max_tokens
    decoding = run.decoding_of(evaluation)
    return Generator(
        policy, decoding, run.searched_digest, run.seed, seed_name, run.agent, run.environment, max_tokens, judge
    )


def questions_of(run: RunContext[AgentSpec], part: Part) -> list[Question]:
    """Read the questions to train or evaluate on.

    Raises:
        UserError: there are no questions, or a question lacks the passages that the agent chooses from.
    """
    questions = run.questions(part)
    bare = next((question for question in questions if not question.context), None)
    if run.environment == "distractor" and bare is not None:
        raise UserError(
            f"{RunDir(run.run_dir).questions(part)}: question {bare.id} comes without passages; use files with "
            "contexts (a generated world: dataset.world.context), or environment closed-book"
        )
    return questions
