"""HotpotQA: answer, supporting-fact and joint scores, as ``hotpot_evaluate_v1.py`` defines them.

Gold: the official list of questions (contexts may be left out). Predictions: one object with ``answer``
{id: text} and ``sp`` {id: [[title, sentence index]]}. A question that lacks one part scores 0 in that part
and in the joint measures, and stays in every denominator.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from platform_sdk.data.files import read_json
from platform_sdk.evaluation.metrics.parts import Part, answer_part, set_part, tabulate
from platform_sdk.evaluation.metrics.scores import Scores, count_unknown, require_questions

Fact = tuple[str | int | float | bool | None, ...]
"""A predicted (title, sentence index). The script accepts any tuple; other forms are never right."""


class Gold(msgspec.Struct, gc=False):
    """The fields of a question that scoring needs."""

    answer: str
    supporting_facts: frozenset[tuple[str, int]]
    id: str = msgspec.field(name="_id")


class Predictions(msgspec.Struct):
    """A prediction file."""

    answer: dict[str, str]
    sp: dict[str, frozenset[Fact]]


def score(gold: Path, predictions: Path) -> Scores:
    """Score a prediction file; the columns have the script's names.

    Raises:
        RecordError: a file is malformed.
    """
    questions = read_json(gold, list[Gold])
    require_questions(gold, len(questions))
    predicted = read_json(predictions, Predictions)
    ids = [question.id for question in questions]
    unknown = count_unknown(ids, predicted.answer, predicted.sp)
    return tabulate(ids, ("", "sp_"), _rows(questions, predicted), unknown)


def _rows(questions: list[Gold], predicted: Predictions) -> Iterator[tuple[Part | None, Part | None]]:
    for question in questions:
        answer, facts = predicted.answer.get(question.id), predicted.sp.get(question.id)
        yield (
            None if answer is None else answer_part(answer, question.answer, "hotpotqa"),
            None if facts is None else set_part(facts, question.supporting_facts),
        )
