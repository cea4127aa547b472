"""ARENA's adaptive rewards (section 3.3): named components of a response's worth, and their weighted sum.

| component | value |
|---|---|
| format | 1 if the form's sections stand in order with nothing else around them |
| accuracy | of the answer section: exact match, or token F1, under ARENA's normaliser; or a judge's verdict |
| relevance | of the numbers in the relevance section against the gold ones, as sets: 1 equal, 0.5 overlapping |
| bonus | 10 if the three are all 1 |
| reward | the weighted sum of these and of a recipe's own rewards |

Accuracy and relevance are read from their own section wherever it stands. *1* in the bonus's condition means the value
itself whatever gives the accuracy: a token F1 of 1, a verdict of yes. Both sets empty are equal: ``[]`` is right where
the context holds no gold passage, and a missing section is not ``[]``.

``em`` and ``f1`` are beside them, under the dataset's own convention: they are what an evaluation reports, and no part
of the sum; nor is ``no_verdict``, 1 where a judge's reply held no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from platform_sdk.agents.own_reward import load_reward
from platform_sdk.evaluation.answers import exact_match, f1_score, spaced_exact_match, spaced_f1
from platform_sdk.evaluation.judge import NO_VERDICT
from platform_sdk.methods.arena.grammar import parse, well_formed, without_thoughts
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.records import Question, Rollout

if TYPE_CHECKING:
    from platform_sdk.evaluation.judge import Judge, Verdict

BONUS = 10.0


def rewards(rollout: Rollout, spec: AgentSpec, judged: Verdict | None = None) -> dict[str, float]:
    """All named rewards of a rollout.

    Args:
        judged: a judge's verdict on the answer. Where accuracy is a judge's and there is none yet, what depends on it
            (accuracy, bonus, reward) is left out.
    """
    question, text, settings = rollout.question, response_of(rollout, spec), spec.rewards
    response = parse(text, spec.form)
    convention = question.dataset
    values = {
        "em": exact_match(response.answer, question.answers, convention),
        "f1": f1_score(response.answer, question.answers, convention).f1,
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
    values |= {name: float(load_reward(extra.function)(rollout)) for name, extra in settings.extra.items()}
    weights = settings.weights.model_dump() | {name: extra.weight for name, extra in settings.extra.items()}
    return values | {"reward": sum(weight * values[name] for name, weight in weights.items())}


def judged(rollouts: Sequence[Rollout], spec: AgentSpec, judge: Judge) -> list[Rollout]:
    """The rollouts with all their rewards, where accuracy is a judge's, who is asked about all of them at once."""
    verdicts = judge.verdicts(items_of(rollouts))
    return [
        rollout.model_copy(update={"rewards": rewards(rollout, spec, verdict)})
        for rollout, verdict in zip(rollouts, verdicts, strict=True)
    ]


def items_of(rollouts: Sequence[Rollout]) -> list[tuple[str, tuple[str, ...], str | None]]:
    """Return what a judge is shown of each rollout: question, accepted answers, answer.

    Not the whole response, which ARENA shows its judge: accuracy is of the answer section, and an analysis that names
    an accepted answer without giving it would be rewarded.
    """
    return [(rollout.question.text, rollout.question.answers, rollout.main.answer) for rollout in rollouts]


def relevance(predicted: frozenset[int] | None, gold: frozenset[int]) -> float:
    """1 for the gold passages and no others, 0.5 for some of them, else 0; ``None`` (could not be read) scores 0."""
    if predicted is None:
        return 0.0
    if predicted == gold:
        return 1.0
    return 0.5 if predicted & gold else 0.0


def gold_numbers(question: Question) -> frozenset[int]:
    """The numbers, from 1, of the gold passages in the question's context."""
    return frozenset(place + 1 for place in question.gold_positions)


def response_of(rollout: Rollout, spec: AgentSpec) -> str:
    """The text that is scored: the agent's one turn, or the answer that a strategy of several came to; or nothing."""
    if spec.strategy != "single":
        return rollout.main.answer or ""
    spoken = [turn.text for turn in rollout.main.turns if turn.speaker == "agent"]
    return without_thoughts(spoken[-1], spec.form) if spoken else ""
