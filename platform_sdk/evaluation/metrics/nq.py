"""NQ-open: exact match, containment and token F1, each the best over the gold answers.

Gold: JSONL of ``question, answer [...]`` (or ``answers``, as in gold-passage files). Predictions: JSONL of
``question, prediction``; or one JSON list of such objects, or of texts in the gold file's order.
``sub_em`` is 1 if the normalised prediction contains a normalised gold answer as a substring.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from platform_sdk.data.files import is_list, read_bytes, read_json, read_json_lines
from platform_sdk.evaluation.answers import bag, pair_f1
from platform_sdk.evaluation.metrics.scores import Scores, count_unknown, require_questions
from platform_sdk.record_files import RecordError


class Gold(msgspec.Struct, gc=False):
    """A question and its answers, as ``answer`` or ``answers``."""

    question: str
    answer: list[str] | None = None
    answers: list[str] | None = None


class Prediction(msgspec.Struct, gc=False):
    """A line of a prediction file."""

    question: str
    prediction: str


def score(gold: Path, predictions: Path) -> Scores:
    """Score a prediction file in ``em``, ``sub_em`` and ``f1``.

    Raises:
        RecordError: a file is malformed, or a list of texts has another length than the gold file.
    """
    questions = read_json_lines(gold, Gold)
    require_questions(gold, len(questions))
    predicted, unknown = _predicted(predictions, questions)
    columns: dict[str, list[float]] = {"em": [], "sub_em": [], "f1": []}
    add_em, add_sub_em, add_f1 = (column.append for column in columns.values())
    for number, (question, prediction) in enumerate(zip(questions, predicted, strict=True), start=1):
        golds = question.answer or question.answers
        if not golds:
            raise RecordError(f"{gold}: record {number}: answer: missing or empty")
        em, sub_em, f1 = (0.0, 0.0, 0.0) if prediction is None else best(prediction, golds)
        add_em(em)
        add_sub_em(sub_em)
        add_f1(f1)
    missing = sum(text is None for text in predicted)
    return Scores([q.question for q in questions], columns, {"": missing}, unknown=unknown)


def best(prediction: str, golds: Sequence[str]) -> tuple[float, float, float]:
    """Return exact match, containment and F1 of a prediction, each the best over the gold answers."""
    predicted = bag(prediction)
    bags = [bag(gold) for gold in golds]
    em = any(gold.text == predicted.text for gold in bags)
    sub_em = em or any(gold.text in predicted.text for gold in bags)
    return float(em), float(sub_em), max(pair_f1(predicted, gold, "nq").f1 for gold in bags)


def _predicted(path: Path, questions: Sequence[Gold]) -> tuple[list[str | None], int]:
    """Return each question's prediction, or None, and the number of predictions without a question."""
    if not is_list(read_bytes(path)):
        lines = read_json_lines(path, Prediction)
    else:
        listed = read_json(path, list[str | Prediction])
        texts: list[str | None] = [entry for entry in listed if isinstance(entry, str)]
        lines = [entry for entry in listed if isinstance(entry, Prediction)]
        if texts and lines:
            raise RecordError(f"{path}: mixes texts and objects; give a list of one kind")
        if not lines:
            if len(texts) != len(questions):
                raise RecordError(
                    f"{path}: lists {len(texts)} predictions, but the gold file has {len(questions)} questions"
                )
            return texts, 0
    by_question = {line.question: line.prediction for line in lines}
    asked = [question.question for question in questions]
    return [by_question.get(question) for question in asked], count_unknown(asked, by_question)
