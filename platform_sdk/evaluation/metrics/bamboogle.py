"""Bamboogle: exact match, containment and token F1.

Gold: the authors' CSV of ``Question`` and ``Answer``. Predictions: JSONL of ``question`` and ``prediction``. Press et
al. (2023) publish no script; search agents report exact match after SQuAD's normalisation.
"""

from __future__ import annotations

from pathlib import Path

from platform_sdk.data.files import check, read_bytes, read_json_lines
from platform_sdk.data.formats.bamboogle import BamboogleRecord
from platform_sdk.data.tables import read_table
from platform_sdk.evaluation.metrics.nq import Prediction, best
from platform_sdk.evaluation.metrics.scores import Scores, count_unknown, require_questions


def score(gold: Path, predictions: Path) -> Scores:
    """Score a prediction file in ``em``, ``sub_em`` and ``f1``, as NQ's.

    Raises:
        RecordError: a file is malformed.
    """
    predicted = {line.question: line.prediction for line in read_json_lines(predictions, Prediction)}
    rows = read_table(gold, read_bytes(gold), ",")
    records = [check(gold, f"line {line}: ", row, BamboogleRecord) for line, row in rows]
    require_questions(gold, len(records))
    ids = [record.question for record in records]
    scored = [
        best(predicted[record.question], [record.answer]) if record.question in predicted else (0.0, 0.0, 0.0)
        for record in records
    ]
    columns = {
        name: list(values) for name, values in zip(("em", "sub_em", "f1"), zip(*scored, strict=True), strict=True)
    }
    missing = sum(id_ not in predicted for id_ in ids)
    return Scores(ids, columns, {"": missing}, unknown=count_unknown(ids, predicted))
