"""The datasets' metrics, equal to the official scripts: gold and prediction file in, scores out."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from platform_sdk.evaluation.metrics import bamboogle, hotpotqa, musique, nq, popqa, qald10, triviaqa, twowiki
from platform_sdk.evaluation.metrics.scores import Scores

COUNTS = frozenset({"turns", "searches", "tool_calls", "tool_errors", "tokens", "calls", "threads"})
"""Metrics that are counts even if all values of a run lie in 0..1; all others are shares."""
Dataset = Literal["hotpotqa", "2wikimultihopqa", "musique", "nq", "triviaqa", "popqa", "bamboogle", "qald10"]


def score_files(dataset: Dataset, gold: Path, predictions: Path, names: Path | None = None) -> Scores:
    """Score a prediction file against a gold file, both in the dataset's official format.

    Args:
        dataset: the dataset whose format and definitions apply.
        gold: the official questions file.
        predictions: the official predictions file; ids that ``gold`` does not have are counted and ignored.
        names: further names of the gold entities. 2WikiMultihopQA: the official ``id_aliases.json``;
            QALD-10: ``topic_entities.json`` (default: in the folder of ``gold``).

    Raises:
        RecordError: a file is missing or malformed; the message says where.
        ValueError: ``names`` is given for a dataset without such a file.
    """
    match dataset:
        case "2wikimultihopqa":
            return twowiki.score(gold, predictions, names)
        case "qald10":
            return qald10.score(gold, predictions, names)
    if names is not None:
        raise ValueError(f"{dataset} has no file of further entity names")
    match dataset:
        case "hotpotqa":
            return hotpotqa.score(gold, predictions)
        case "musique":
            return musique.score(gold, predictions)
        case "nq":
            return nq.score(gold, predictions)
        case "triviaqa":
            return triviaqa.score(gold, predictions)
        case "popqa":
            return popqa.score(gold, predictions)
        case "bamboogle":
            return bamboogle.score(gold, predictions)


__all__ = ["Dataset", "Scores", "score_files"]
