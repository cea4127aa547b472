"""TriviaQA: exact match and token F1, each the best over the accepted answers.

Gold: the official JSON object with ``Data``. Predictions: a JSON object of answers by ``QuestionId``. As in the
official script, the accepted answers are ``NormalizedAliases``, and ``HumanAnswers`` after normalisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from platform_sdk.data.files import read_json
from platform_sdk.evaluation.answers import exact_match, f1_score
from platform_sdk.evaluation.metrics.scores import Scores, count_unknown, require_questions
from platform_sdk.record_files import RecordError


class Answer(msgspec.Struct, rename="pascal", gc=False):
    """The accepted answers of a question."""

    normalized_aliases: list[str]
    human_answers: list[str] = msgspec.field(default_factory=list)


class Gold(msgspec.Struct, rename="pascal", gc=False):
    """A question of the list ``Data``."""

    question_id: str
    answer: Answer


class GoldFile(msgspec.Struct, rename="pascal"):
    """An official file."""

    data: list[Gold]


def score(gold: Path, predictions: Path) -> Scores:
    """Score a prediction file in ``em`` and ``f1``.

    Raises:
        RecordError: a file is malformed, or a question has no accepted answer.
    """
    questions = read_json(gold, GoldFile).data
    require_questions(gold, len(questions))
    predicted = read_json(predictions, dict[str, str])
    columns: dict[str, list[float]] = {"em": [], "f1": []}
    for number, question in enumerate(questions, start=1):
        golds = accepted(gold, number, question)
        prediction = predicted.get(question.question_id)
        columns["em"].append(exact_match(prediction, golds, "triviaqa"))
        columns["f1"].append(f1_score(prediction, golds, "triviaqa").f1)
    ids = [question.question_id for question in questions]
    missing = sum(id_ not in predicted for id_ in ids)
    return Scores(ids, columns, {"": missing}, unknown=count_unknown(ids, predicted))


def accepted(path: Path, number: int, question: Gold) -> Sequence[str]:
    """Return a question's accepted answers.

    Raises:
        RecordError: there is none.
    """
    golds = [*question.answer.normalized_aliases, *question.answer.human_answers]
    if not golds:
        raise RecordError(f"{path}: record {number}: Answer.NormalizedAliases: lists no answer")
    return golds
