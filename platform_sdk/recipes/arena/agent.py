"""The generator: passages in, one response that shows what it rests on (ARENA, section 3.1).

One rollout is one trajectory of role ``agent``: its evidence are the question's passages in their order, ``selected``
those that the response names. The prompting baselines call others beside it (``strategies``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from platform_sdk.recipes.arena import prompts
from platform_sdk.recipes.arena.grammar import parse, well_formed
from platform_sdk.recipes.arena.rewards import rewards
from platform_sdk.recipes.arena.settings import AgentSpec
from platform_sdk.recipes.arena.speaker import Distribution, Speaker
from platform_sdk.recipes.arena.strategies import Spoken, self_ask, sure
from platform_sdk.records import Passage, Question, Rollout, given_evidence
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.rollout import Agent, Consult
from platform_sdk.sampling.seeds import seed_of

if TYPE_CHECKING:
    from platform_sdk.evaluation.judge import Judge, Verdict

Environment = Literal["distractor", "closed-book"]
DISORDER = "the sections do not stand in their order with nothing else around them"


@dataclass(frozen=True)
class Generator:
    """The agent with everything that one rollout depends on besides the question and the attempt.

    ``weights`` and ``corpus`` are the digests of the policy and of the passages; ``judge`` is asked about every answer
    where accuracy is a judge's.
    """

    tokenizer: Any
    spec: AgentSpec
    environment: Environment
    distribution: Distribution
    weights: str
    corpus: str
    seed: int
    phase: str
    judge: Judge | None = None

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """One attempt at a question; returns the scored rollout."""
        seed = seed_of(self.seed, self.phase, question.id, attempt)
        speaker = Speaker(self.tokenizer, self.distribution, f"{question.id}#{attempt}", seed)
        match self.spec.strategy:
            case "single":
                spoken = yield from self._respond(speaker, question)
            case "sure":
                spoken = yield from sure(speaker, question, self._passages(question), self.spec)
            case "self_ask":
                spoken = yield from self_ask(speaker, question, self._passages(question), self.spec)
        rollout = self.recorded(question, attempt, seed, spoken)
        verdict: Verdict | None = None
        if self.judge is not None:
            verdict = yield Consult(self.judge.verdicts, (question.text, question.answers, rollout.main.answer))
        return rollout.model_copy(update={"rewards": rewards(rollout, self.spec, verdict)})

    def prompted(self, question: Question) -> Dialogue:
        """The dialogue in which a single response is asked for."""
        passages = self._passages(question)
        return Dialogue(
            self.tokenizer,
            prompts.instruction(self.spec.prompts, self.spec.form, passages=bool(passages)),
            prompts.opening(question.text, passages, self.spec.prompts),
            prompts.example(self.spec.prompts, self.spec.form) if self.spec.demonstrate else (),
            given_evidence(passages),
        )

    def read(self, dialogue: Dialogue, question: Question, text: str) -> Spoken:
        """What a single response, the last turn of the dialogue, says."""
        passages, form = self._passages(question), self.spec.form
        if not well_formed(text, form, strict=self.spec.rewards.format == "strict"):
            dialogue.note_malformed(DISORDER)
        response = parse(text, form)
        selected = tuple(n - 1 for n in sorted(response.relevance or ()) if 1 <= n <= len(passages))
        trajectory = dialogue.trajectory("agent", "agent", selected=selected, answer=response.answer)
        return Spoken(trajectory, outcome="iteration_limit" if response.answer is None else "answered")

    def recorded(self, question: Question, attempt: int, seed: int, spoken: Spoken) -> Rollout:
        """What was said, as a rollout without rewards."""
        return Rollout(
            question=question,
            attempt=attempt,
            seed=seed,
            main=spoken.trajectory,
            others=spoken.others,
            outcome=spoken.outcome,
            weights=self.weights,
            corpus=self.corpus,
        )

    def _respond(self, speaker: Speaker, question: Question) -> Agent[Spoken]:
        dialogue = self.prompted(question)
        reply = yield from speaker.reply(dialogue, "response")
        if reply is not None:
            return self.read(dialogue, question, reply.text)
        return Spoken(dialogue.trajectory("agent", "agent"), outcome="context_limit")

    def _passages(self, question: Question) -> tuple[Passage, ...]:
        return question.context if self.environment == "distractor" else ()
