"""Demonstrations for the supervised baselines (ARENA, appendix D).

SFT-direct learns the gold answer as the response. SFT-reasoning has the model explain the gold answer from the gold
passages first, and learns the explanation in ARENA's three sections; for a model too small for that, a rule quotes the
passages instead (``quotes``). No policy has sampled these responses, so they have no log-probabilities: they are for
maximum likelihood alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from platform_sdk.agents.sections import without_thoughts
from platform_sdk.agents.speaker import Policy
from platform_sdk.errors import UserError
from platform_sdk.methods.arena import prompts
from platform_sdk.methods.arena.agent import Generator, generator, questions_of
from platform_sdk.methods.arena.grammar import write
from platform_sdk.methods.arena.quotes import quoted
from platform_sdk.methods.arena.rewards import gold_numbers, rewards
from platform_sdk.methods.arena.settings import AgentSpec, DemonstrationSpec
from platform_sdk.methods.method import (
    NoCarry,
    RunContext,
    Sampling,
    SamplingOutcome,
    SamplingStep,
)
from platform_sdk.records import Outcome, Question, Rollout, given_evidence
from platform_sdk.run_dir import PhaseDir
from platform_sdk.sampling.models import load_tokenizer, weights_digest
from platform_sdk.sampling.rollout import Agent
from platform_sdk.sampling.sampler import open_sampler
from platform_sdk.training.online.questions import shuffled


class Demonstrations(SamplingStep[AgentSpec, DemonstrationSpec, NoCarry]):
    """Demonstrations in the agent's form: the gold answer, alone or after a sampled or quoted explanation."""

    settings = DemonstrationSpec
    carry = NoCarry

    def asks_model(self, run: RunContext[AgentSpec], settings: DemonstrationSpec) -> bool:
        return run.agent.form != "direct" and settings.explanations == "sampled"

    def sample(self, round: Sampling[AgentSpec, DemonstrationSpec, NoCarry]) -> SamplingOutcome[NoCarry]:
        run = round.run
        if run.agent.form == "think":
            raise UserError("agent.form: there are no demonstrations of the form think; use direct or three_part")
        questions = shuffled(questions_of(run, "train"), f"{round.phase} {run.seed}")[: round.settings.questions]
        demonstrated = _explained if self.asks_model(run, round.settings) else _by_rule
        explained, found, seconds = demonstrated(round, questions)
        figures = {"demonstrations": len(found), "left_out": len(questions) - len(found)}
        return SamplingOutcome(explained, [question.id for question in questions], NoCarry(), found, figures, seconds)


class Explainer(Generator):
    """The model that writes the reasoning; the answer of its rollouts is the explanation."""

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """Sample one explanation; one cut off at the limit of tokens does not count."""
        speaker = self.speaker(question, attempt, self.max_tokens)
        gold = sorted(gold_numbers(question))
        dialogue = speaker.dialogue(
            prompts.EXPLAIN[self.spec.prompts],
            prompts.explain_opening(question, gold, self.spec.prompts, self.spec.numbers),
            evidence=given_evidence(question.context),
        )
        reply = yield from speaker.reply(dialogue, "explanation")
        explanation = None if reply is None or reply.cut else without_thoughts(reply.text).strip()
        trajectory = dialogue.trajectory("agent", "agent", answer=explanation or None)
        outcome: Outcome = "context_limit" if reply is None else "answered" if explanation else "iteration_limit"
        return self.recorded(question, attempt, speaker.seed, trajectory, (), outcome)


Written = tuple[Sequence[Rollout], Sequence[Rollout], float]
"""Sampled rollouts, demonstrations, and the seconds of sampling."""


def _by_rule(round: Sampling[AgentSpec, DemonstrationSpec, NoCarry], questions: Sequence[Question]) -> Written:
    """Write the demonstrations without a model; explanations without a gold passage to quote are left out."""
    policy = Policy(load_tokenizer(round.model), weights_digest(round.model))
    agent = generator(round.run, policy, round.phase)
    if agent.spec.form == "direct":
        return [], [direct_demonstration(agent, question) for question in questions], 0.0
    found = [reasoned_demonstration(agent, question, quoted(question)) for question in questions]
    return [], [rollout for rollout in found if rollout is not None], 0.0


def _explained(round: Sampling[AgentSpec, DemonstrationSpec, NoCarry], questions: Sequence[Question]) -> Written:
    """Sample explanations of the gold answers; questions without a gold passage in their context are left out."""
    run = round.run
    explicable = [question for question in questions if gold_numbers(question)]

    def make_agent(tokenizer: Any, weights: str) -> Explainer:
        agent = generator(run, Policy(tokenizer, weights), round.phase)
        return Explainer(**{**vars(agent), "max_tokens": round.settings.reasoning_tokens})

    path = PhaseDir(round.folder).rollouts
    with open_sampler(path, run.sampling.engine, round.model, make_agent) as work:
        work.once(explicable, 0, round.phase)
        agent = make_agent(work.engine.tokenizer, work.engine.weight_version)
        explained = work.ordered(explicable)
        found = [reasoned_demonstration(agent, rollout.question, rollout.main.answer) for rollout in explained]
    return explained, [rollout for rollout in found if rollout is not None], work.seconds


def direct_demonstration(generator: Generator, question: Question) -> Rollout:
    """Return a rollout whose response is the gold answer."""
    return _demonstration(generator, question, question.answers[0])


def reasoned_demonstration(generator: Generator, question: Question, explanation: str | None) -> Rollout | None:
    """Return a rollout whose response is the gold passages, an explanation of them, and the gold answer.

    Return None if there is no explanation, or if its text breaks the form.
    """
    if explanation is None:
        return None
    text = write(sorted(gold_numbers(question)), explanation, question.answers[0])
    rollout = _demonstration(generator, question, text)
    return rollout if rollout.rewards["format"] == 1 else None


def _demonstration(generator: Generator, question: Question, text: str) -> Rollout:
    dialogue = generator.prompted(question)
    dialogue.recite(text)
    spoken = generator.read(dialogue, question, text)
    rollout = generator.recorded(question, 0, generator.seed, spoken.trajectory, (), spoken.outcome)
    return rollout.model_copy(update={"rewards": rewards(rollout, generator.spec)})
