"""MuSiQue-Ans: answer and supporting-paragraph scores, as ``evaluate_v1.0.py`` defines them, unrounded.

Gold: the official JSONL (``paragraphs`` are optional: the decomposition names the same supporting paragraphs).
Predictions: JSONL of ``id, predicted_answer, predicted_support_idxs``. The script requires equal order and length; here
the n-th prediction with an id matches the n-th question with this id, and a question without a prediction scores 0.
Questions with ``answerable: false`` (MuSiQue-Full) are skipped, as in the script; its sufficiency scores are not
computed.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec

from platform_sdk.data.files import read_json_lines
from platform_sdk.display import shortened
from platform_sdk.evaluation.answers import Bag, bag, pair_f1
from platform_sdk.evaluation.metrics.parts import set_part
from platform_sdk.evaluation.metrics.scores import Scores, require_questions
from platform_sdk.record_files import RecordError


class Paragraph(msgspec.Struct, gc=False):
    """A paragraph without its text."""

    idx: int
    is_supporting: bool


class Step(msgspec.Struct, gc=False):
    """A step of the question's decomposition."""

    paragraph_support_idx: int | None


class Gold(msgspec.Struct, gc=False):
    """The fields of a question that scoring needs."""

    id: str
    answer: str
    answer_aliases: list[str]
    paragraphs: list[Paragraph] | None = None
    question_decomposition: list[Step] | None = None
    answerable: bool = True


class Prediction(msgspec.Struct, gc=False):
    """A line of a prediction file."""

    id: str
    predicted_answer: str
    predicted_support_idxs: list[int | str | float]


def score(gold: Path, predictions: Path) -> Scores:
    """Score a prediction file; the columns have the script's names.

    Raises:
        RecordError: a file is malformed.
    """
    questions = read_json_lines(gold, Gold)
    predicted: defaultdict[str, list[Prediction]] = defaultdict(list)
    for prediction in reversed(read_json_lines(predictions, Prediction)):
        predicted[prediction.id].append(prediction)
    scored: list[str] = []
    columns: dict[str, list[float]] = {"answer_em": [], "answer_f1": [], "support_f1": []}
    add_em, add_f1, add_support = (column.append for column in columns.values())
    missing = 0
    for number, question in enumerate(questions, start=1):
        waiting = predicted.get(question.id)
        found = waiting.pop() if waiting else None
        if not question.answerable:
            continue
        scored.append(question.id)
        if found is None:
            missing += 1
            em = f1 = support = 0.0
        else:
            em, f1 = _answer(bag(found.predicted_answer), [question.answer, *question.answer_aliases])
            support = set_part(_indices(predictions, found), _supporting(gold, number, question))[1]
        add_em(em)
        add_f1(f1)
        add_support(support)
    require_questions(gold, len(scored))
    skipped = len(questions) - len(scored)
    notes = (f"{skipped} unanswerable questions take no part",) if skipped else ()
    # Predictions without a question; a skipped question has consumed its prediction.
    unknown = sum(map(len, predicted.values()))
    return Scores(scored, columns, {"": missing}, notes, unknown)


def _answer(prediction: Bag, golds: list[str]) -> tuple[float, float]:
    bags = [bag(gold) for gold in golds]
    em = float(any(prediction.text == gold.text for gold in bags))
    return em, 1.0 if em else max(pair_f1(prediction, gold, "musique").f1 for gold in bags)


def _indices(path: Path, prediction: Prediction) -> frozenset[object]:
    try:
        return frozenset(map(int, prediction.predicted_support_idxs))
    except (ValueError, OverflowError) as error:
        raise RecordError(
            f"{path}: {shortened(prediction.id)}: predicted_support_idxs: {shortened(str(error), 200)}"
        ) from error


def _supporting(path: Path, number: int, question: Gold) -> frozenset[object]:
    if question.paragraphs is not None:
        return frozenset(paragraph.idx for paragraph in question.paragraphs if paragraph.is_supporting)
    if question.question_decomposition is not None:
        return frozenset(
            step.paragraph_support_idx
            for step in question.question_decomposition
            if step.paragraph_support_idx is not None
        )
    raise RecordError(f"{path}: record {number}: paragraphs: missing, and so is question_decomposition")
