"""QALD-10: predicted texts against the names of the answers.

Gold: the official QALD JSON. Predictions: one object {question id: [text, ...]}. Answers are Wikidata entities; their
labels come from a ``topic_entities.json`` (a list of ``id, answer_labels {entity id: label}``), by default in the gold
file's folder. A prediction may also be an entity id or URI; booleans are ``yes`` and ``no``.

``em`` and ``f1`` are the scores of the best pair of a predicted text and a name. ``set_prec``, ``set_recall`` and
``set_f1`` are QALD's macro measures: the share of predicted texts that name an answer, and the share of answers that
are named. For a question without an answer, an empty prediction scores 1 throughout, any other 0.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from platform_sdk.data.files import read_json
from platform_sdk.data.formats.qald10 import QaldQuestion, accepted_answers, read_entity_names
from platform_sdk.evaluation.answers import bag, pair_f1
from platform_sdk.evaluation.metrics.parts import counted
from platform_sdk.evaluation.metrics.scores import Scores, count_unknown, require_questions

NAMES = ("em", "f1", "set_prec", "set_recall", "set_f1")
LABELS = "topic_entities.json"


class Gold(msgspec.Struct):
    """A QALD file."""

    questions: list[QaldQuestion]


def score(gold: Path, predictions: Path, labels: Path | None = None) -> Scores:
    """Score a prediction file.

    Args:
        gold: the official QALD JSON.
        predictions: the prediction file.
        labels: the names of the answers; by default ``topic_entities.json`` in the folder of ``gold``, if it exists.

    Raises:
        RecordError: a file is malformed.
    """
    questions = read_json(gold, Gold).questions
    require_questions(gold, len(questions))
    predicted = read_json(predictions, dict[str, list[str]])
    beside = gold.with_name(LABELS)
    found = labels or (beside if beside.is_file() else None)
    names = read_entity_names(found) if found else {}
    ids = [str(question.id) for question in questions]
    rows: list[tuple[float, ...]] = []
    for id_, question in zip(ids, questions, strict=True):
        texts = predicted.get(id_)
        answers = accepted_answers(question, names[id_].answer_labels if id_ in names else {})
        rows.append((0.0,) * len(NAMES) if texts is None else _row(texts, answers))
    note = f"answer labels from {found}" if found else "no answer labels: entities are compared by id"
    columns = {name: list(column) for name, column in zip(NAMES, zip(*rows, strict=True), strict=True)}
    return Scores(ids, columns, {"": sum(id_ not in predicted for id_ in ids)}, (note,), count_unknown(ids, predicted))


def _row(texts: list[str], answers: list[tuple[str, ...]]) -> tuple[float, ...]:
    if not answers:
        return (float(not texts),) * len(NAMES)
    bags = [bag(text) for text in texts]
    golds = [[bag(name) for name in answer] for answer in answers]
    f1 = max((pair_f1(p, g, "qald10").f1 for p in bags for names in golds for g in names), default=0.0)
    predicted = {p.text for p in bags}
    accepted = {g.text for names in golds for g in names}
    named = sum(any(g.text in predicted for g in names) for names in golds)
    right = predicted & accepted
    _, set_f1, set_prec, set_recall = counted(len(right), len(predicted), named, len(answers))
    return (float(bool(right)), f1, set_prec, set_recall, set_f1)
