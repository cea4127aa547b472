"""ARENA's adaptive rewards (section 3.3): named components and their weighted sum.

| component | value |
|---|---|
| format | 1 if the form's sections stand in order with nothing else around them |
| accuracy | of the answer section: exact match, or token F1, under ARENA's normaliser; or a judge's verdict |
| relevance | of the numbers in the relevance section against the gold ones, as sets: 1 equal, 0.5 overlapping |
| bonus | 10 if the three are all 1 |
| reward | the weighted sum of these and of a recipe's own rewards |

Accuracy and relevance are read from their sections at any position. The bonus requires an accuracy of exactly 1: an
exact match, a token F1 of 1, or a judge's yes. Two empty sets are equal: ``[]`` is right if the context holds no gold
passage; a missing section differs from ``[]``.

``em`` and ``f1`` follow the dataset's own convention. Evaluations report them; they are not part of the sum. Neither is
``no_verdict``, which is 1 if a judge's reply held no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from platform_sdk.agents.own_reward import own_reward
from platform_sdk.config.judge import NO_VERDICT
from platform_sdk.evaluation.answers import answer_rewards, spaced_exact_match, spaced_f1
from platform_sdk.methods.arena.grammar import parse, well_formed, without_thoughts
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.records import Question, Rollout

if TYPE_CHECKING:
    from platform_sdk.evaluation.judge import Judge, Verdict

BONUS = 10.0


def rewards(rollout: Rollout, spec: AgentSpec, judged: Verdict | None = None) -> dict[str, float]:
    """Return all named rewards of a rollout.

    Args:
        judged: a judge's verdict on the answer. If the recipe uses a judge and the verdict is missing, accuracy, bonus
            and reward are left out.
    """
    question, text, settings = rollout.question, response_of(rollout, spec), spec.rewards
    response = parse(text, spec.form)
    values = answer_rewards(response.answer, question) | {
        "format": float(well_formed(text, spec.form, strict=settings.format == "strict")),
        "relevance": relevance(response.relevance, gold_numbers(question)),
    }
    if settings.accuracy != "judge":
        measure = spaced_exact_match if settings.accuracy == "em" else spaced_f1
        accuracy = measure(response.answer, question.answers)
    elif judged is None:
        return values
    else:
        accuracy = float(judged == "yes")
        values[NO_VERDICT] = float(judged == "unparsable")
    values["accuracy"] = accuracy
    values["bonus"] = BONUS * (values["format"] == accuracy == values["relevance"] == 1)
    given = rollout.model_copy(update={"rewards": values.copy()})  # the same for a new and for a recorded rollout
    values |= {name: own_reward(extra.function, given) for name, extra in settings.extra.items()}
    weights = settings.weights.model_dump() | {name: extra.weight for name, extra in settings.extra.items()}
    return values | {"reward": sum(weight * values[name] for name, weight in weights.items())}


def recorded_verdict(rollout: Rollout) -> Verdict | None:
    """Return a judge's verdict from a rollout's recorded rewards; None if they have no accuracy."""
    if "accuracy" not in rollout.rewards:
        return None
    if rollout.rewards.get(NO_VERDICT):
        return "unparsable"
    return "yes" if rollout.rewards["accuracy"] == 1 else "no"


def judged(rollouts: Sequence[Rollout], spec: AgentSpec, judge: Judge) -> list[Rollout]:
    """Return the rollouts with all their rewards after sending all answers to the judge in one batch."""
    verdicts = judge.verdicts(items_of(rollouts))
    return [
        rollout.model_copy(update={"rewards": rewards(rollout, spec, verdict)})
        for rollout, verdict in zip(rollouts, verdicts, strict=True)
    ]


def items_of(rollouts: Sequence[Rollout]) -> list[tuple[str, tuple[str, ...], str | None]]:
    """Return the judge's items: question, accepted answers and parsed answer of each rollout.

    ARENA's judge reads the whole response. Here it reads the answer section alone; otherwise an analysis that mentions
    an accepted answer would be rewarded although the answer differs.
    """
    return [(rollout.question.text, rollout.question.answers, rollout.main.answer) for rollout in rollouts]


def relevance(predicted: frozenset[int] | None, gold: frozenset[int]) -> float:
    """Return 1 for exactly the gold passages, 0.5 for an overlap, else 0; ``None`` (unreadable) scores 0."""
    if predicted is None:
        return 0.0
    if predicted == gold:
        return 1.0
    return 0.5 if predicted & gold else 0.0


def gold_numbers(question: Question) -> frozenset[int]:
    """Return the numbers, from 1, of the gold passages in the question's context."""
    return frozenset(place + 1 for place in question.gold_positions)


def response_of(rollout: Rollout, spec: AgentSpec) -> str:
    """Return the scored text: the agent's single turn, or the final answer of a strategy of several calls."""
    if spec.strategy != "single":
        return rollout.main.answer or ""
    spoken = [turn.text for turn in rollout.main.agent_turns]
    return without_thoughts(spoken[-1], spec.form) if spoken else ""
