"""Scores of the parts of a prediction (answer, supporting facts, evidence), and their joint score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from platform_sdk.evaluation.answers import Convention, bag, pair_f1
from platform_sdk.evaluation.metrics.scores import Scores

Part = tuple[float, float, float, float]
"""Exact match, F1, precision and recall of one part of a prediction; a plain tuple for speed."""

NAMES = ("em", "f1", "prec", "recall")
NOTHING: Part = (0.0, 0.0, 0.0, 0.0)


def harmonic(precision: float, recall: float) -> float:
    """Return the F1 of ``precision`` and ``recall``; 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def answer_part(prediction: str, gold: str, convention: Convention) -> Part:
    """Score an answer against one gold answer."""
    predicted, expected = bag(prediction), bag(gold)
    return (float(predicted.text == expected.text), *pair_f1(predicted, expected, convention))


def set_part(predicted: frozenset[object], gold: frozenset[object]) -> Part:
    """Score a set of predictions. An empty set for an empty gold is an exact match with F1 0."""
    hits = len(predicted & gold)
    return counted(hits, len(predicted), hits, len(gold))


def counted(right: int, predicted: int, found: int, wanted: int) -> Part:
    """Score ``right`` of ``predicted`` entries and ``found`` of ``wanted`` ones."""
    precision = right / predicted if predicted else 0.0
    recall = found / wanted if wanted else 0.0
    return float(right == predicted and found == wanted), harmonic(precision, recall), precision, recall


def joint(parts: Sequence[Part]) -> Part:
    """Return the product of exact matches, of precisions and of recalls, with the F1 of the latter two."""
    em = precision = recall = 1.0
    for part_em, _, part_precision, part_recall in parts:
        em *= part_em
        precision *= part_precision
        recall *= part_recall
    return em, harmonic(precision, recall), precision, recall


def tabulate(ids: list[str], prefixes: Sequence[str], rows: Iterable[Sequence[Part | None]], unknown: int) -> Scores:
    """Arrange the parts of each question, and their joint score, as columns named ``prefix + em`` and so on.

    Args:
        ids: of the questions, in the order of ``rows``; at least one.
        prefixes: one for each part: ``("", "sp_")``.
        rows: the parts of each question; None for a part that the prediction lacks: the part and the joint
            score 0.
        unknown: the number of predictions without a question.
    """
    missing = dict.fromkeys(prefixes, 0)
    flat: list[tuple[float, ...]] = []
    for row in rows:
        parts = [part for part in row if part is not None]
        if len(parts) == len(prefixes):
            parts.append(joint(parts))
        else:
            for prefix, part in zip(prefixes, row, strict=True):
                missing[prefix] += part is None
            parts = [part or NOTHING for part in (*row, None)]
        flat.append(tuple(chain.from_iterable(parts)))
    names = [prefix + name for prefix in (*prefixes, "joint_") for name in NAMES]
    return Scores(ids, dict(zip(names, map(list, zip(*flat, strict=True)), strict=True)), missing, unknown=unknown)
