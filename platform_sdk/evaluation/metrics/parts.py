"""The parts of a prediction (answer, supporting facts, evidence), four numbers each, and their joint score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from platform_sdk.evaluation.answers import Convention, bag, pair_f1
from platform_sdk.evaluation.metrics.scores import Scores


class Part(NamedTuple):
    """Exact match, F1, precision and recall of one part of a prediction."""

    em: float
    f1: float
    prec: float
    recall: float


NOTHING = Part(0.0, 0.0, 0.0, 0.0)


def harmonic(precision: float, recall: float) -> float:
    """Return the F1 of ``precision`` and ``recall``; 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def answer_part(prediction: str, gold: str, convention: Convention) -> Part:
    """Score an answer against one gold answer."""
    predicted, expected = bag(prediction), bag(gold)
    return Part(float(predicted.text == expected.text), *pair_f1(predicted, expected, convention))


def set_part(predicted: frozenset[object], gold: frozenset[object]) -> Part:
    """Score a set of predictions. An empty set for an empty gold is an exact match, yet of F1 0."""
    hits = len(predicted & gold)
    return counted(hits, len(predicted), hits, len(gold))


def counted(right: int, predicted: int, found: int, wanted: int) -> Part:
    """Score ``right`` of ``predicted`` entries and ``found`` of ``wanted`` ones."""
    precision = right / predicted if predicted else 0.0
    recall = found / wanted if wanted else 0.0
    return Part(float(right == predicted and found == wanted), harmonic(precision, recall), precision, recall)


def joint(parts: Sequence[Part | None]) -> Part:
    """Return the product of exact matches, precisions and recalls; nothing if a part was not predicted."""
    em = precision = recall = 1.0
    for part in parts:
        if part is None:
            return NOTHING
        em *= part.em
        precision *= part.prec
        recall *= part.recall
    return Part(em, harmonic(precision, recall), precision, recall)


def tabulate(ids: list[str], prefixes: Sequence[str], rows: Iterable[Sequence[Part | None]]) -> Scores:
    """Lay out the parts of each question, and their joint score, as columns named ``prefix + em`` and so on.

    Args:
        ids: of the questions, in the order of ``rows``.
        prefixes: one for each part: ``("", "sp_")``.
        rows: the parts of each question; ``None`` where the prediction lacks that part.
    """
    names = [prefix + name for prefix in (*prefixes, "joint_") for name in Part._fields]
    columns: list[list[float]] = [[] for _ in names]
    missing = dict.fromkeys(prefixes, 0)
    appends = [column.append for column in columns]
    for parts in rows:
        position = 0
        for prefix, part in zip((*prefixes, "joint_"), (*parts, joint(parts)), strict=True):
            if part is None:
                missing[prefix] += 1
                part = NOTHING
            for value in part:
                appends[position](value)
                position += 1
    return Scores(ids, dict(zip(names, columns, strict=True)), missing)
