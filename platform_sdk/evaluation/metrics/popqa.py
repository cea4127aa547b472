"""PopQA: accuracy as in its authors' script, exact match and token F1, each the best over the possible answers.

Gold: the official TSV. Predictions: JSONL of ``id`` and ``prediction``. ``accuracy`` is 1 if the prediction contains a
possible answer as it is written, in lower case or capitalised (Mallen et al., 2023); search agents report ``em``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from platform_sdk.data.files import check, read_bytes, read_json_lines
from platform_sdk.data.formats.base import BadField
from platform_sdk.data.formats.popqa import PopRecord, possible_answers
from platform_sdk.data.tables import read_table
from platform_sdk.evaluation.answers import exact_match, f1_score
from platform_sdk.evaluation.metrics.scores import Scores, count_unknown, require_questions
from platform_sdk.record_files import RecordError


class Prediction(msgspec.Struct, gc=False):
    """A line of a prediction file."""

    id: str | int
    prediction: str


def score(gold: Path, predictions: Path) -> Scores:
    """Score a prediction file in ``accuracy``, ``em`` and ``f1``.

    Raises:
        RecordError: a file is malformed.
    """
    predicted = {str(line.id): line.prediction for line in read_json_lines(predictions, Prediction)}
    columns: dict[str, list[float]] = {"accuracy": [], "em": [], "f1": []}
    ids: list[str] = []
    for line, row in read_table(gold, read_bytes(gold), "\t"):
        where = f"line {line}: "
        record = check(gold, where, row, PopRecord)
        try:
            answers = possible_answers(record.possible_answers)
        except BadField as error:
            raise RecordError(f"{gold}: {where}{error}") from error
        prediction = predicted.get(record.id)
        columns["accuracy"].append(float(prediction is not None and _contains(prediction, answers)))
        columns["em"].append(exact_match(prediction, answers, "popqa"))
        columns["f1"].append(f1_score(prediction, answers, "popqa").f1)
        ids.append(record.id)
    require_questions(gold, len(ids))
    missing = sum(id_ not in predicted for id_ in ids)
    return Scores(ids, columns, {"": missing}, unknown=count_unknown(ids, predicted))


def _contains(prediction: str, answers: tuple[str, ...]) -> bool:
    return any(form in prediction for answer in answers for form in (answer, answer.lower(), answer.capitalize()))
