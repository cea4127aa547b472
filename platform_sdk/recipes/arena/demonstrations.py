"""What the supervised baselines learn from (ARENA, appendix D).

SFT-direct learns the gold answer as the response. SFT-reasoning has the model explain the gold answer from the gold
passages first, and learns the explanation in ARENA's three sections. No policy has sampled these responses, so they
have no log-probabilities: they are for maximum likelihood alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from platform_sdk.recipes.arena import prompts
from platform_sdk.recipes.arena.agent import Generator
from platform_sdk.recipes.arena.grammar import write
from platform_sdk.recipes.arena.rewards import gold_numbers, rewards
from platform_sdk.recipes.arena.speaker import Speaker
from platform_sdk.recipes.arena.strategies import Outcome, Spoken
from platform_sdk.records import Question, Rollout, given_evidence
from platform_sdk.sampling.engine import Completion
from platform_sdk.sampling.rollout import Agent
from platform_sdk.sampling.seeds import seed_of


@dataclass(frozen=True)
class Explainer:
    """The model that writes the reasoning; ``planner.answer`` of its rollouts is the explanation."""

    generator: Generator

    @property
    def weights(self) -> str:
        return self.generator.weights

    @property
    def corpus(self) -> str:
        return self.generator.corpus

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """One explanation; one that was cut off at the limit of tokens is none."""
        own = self.generator
        seed = seed_of(own.seed, own.phase, question.id, attempt)
        speaker = Speaker(own.tokenizer, own.distribution, f"{question.id}#{attempt}", seed)
        gold = sorted(gold_numbers(question))
        dialogue = speaker.dialogue(
            prompts.EXPLAIN[own.spec.prompts],
            prompts.explain_opening(question, gold, own.spec.prompts),
            given_evidence(question.context),
        )
        reply = yield from speaker.reply(dialogue, "explanation")
        explanation = None if reply is None or reply.cut else reply.text.strip()
        trajectory = dialogue.trajectory("agent", "agent", answer=explanation or None)
        outcome: Outcome = "context_limit" if reply is None else "answered" if explanation else "iteration_limit"
        return own.recorded(question, attempt, seed, Spoken(trajectory, outcome=outcome))


def direct_demonstration(generator: Generator, question: Question) -> Rollout:
    """A rollout that says the gold answer."""
    return _demonstration(generator, question, question.answers[0])


def reasoned_demonstration(generator: Generator, explained: Rollout) -> Rollout | None:
    """A rollout that says the gold passages, an explanation of them, and the gold answer.

    None where there is no explanation, or one whose text breaks the form.
    """
    question, explanation = explained.question, explained.main.answer
    if explanation is None:
        return None
    text = write(sorted(gold_numbers(question)), explanation, question.answers[0])
    rollout = _demonstration(generator, question, text)
    return rollout if rollout.rewards["format"] == 1 else None


def _demonstration(generator: Generator, question: Question, text: str) -> Rollout:
    tokenizer = generator.tokenizer
    said = (*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)
    dialogue = generator.prompted(question)
    dialogue.hear(Completion("demonstration", said, (0.0,) * len(said), "stop"))
    rollout = generator.recorded(question, 0, generator.seed, generator.read(dialogue, question, text))
    main = rollout.main.model_copy(update={"logprobs": ()})
    return rollout.model_copy(update={"main": main, "rewards": rewards(rollout, generator.spec)})
