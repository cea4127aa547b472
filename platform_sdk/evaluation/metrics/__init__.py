"""The datasets' metrics, equal to the official scripts: gold and prediction file in, scores out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from platform_sdk.evaluation.metrics import bamboogle, hotpotqa, musique, nq, popqa, qald10, triviaqa, twowiki
from platform_sdk.evaluation.metrics.scores import Scores

COUNTS = frozenset({"turns", "searches", "tool_calls", "tool_errors", "tokens", "calls", "threads"})
"""Metrics that are counts even if all values of a run lie in 0..1; all others are shares."""
Dataset = Literal["hotpotqa", "2wikimultihopqa", "musique", "nq", "triviaqa", "popqa", "bamboogle", "qald10"]

NAMING: dict[Dataset, Callable[[Path, Path, Path | None], Scores]] = {
    "2wikimultihopqa": twowiki.score, "qald10": qald10.score
}  # fmt: skip
"""Scorers that also read further names of the gold entities."""
SCORERS: dict[Dataset, Callable[[Path, Path], Scores]] = {
    "hotpotqa": hotpotqa.score, "musique": musique.score, "nq": nq.score, "triviaqa": triviaqa.score,
    "popqa": popqa.score, "bamboogle": bamboogle.score,
}  # fmt: skip


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
    if dataset in NAMING:
        return NAMING[dataset](gold, predictions, names)
    if names is not None:
        raise ValueError(f"{dataset} has no file of further entity names")
    return SCORERS[dataset](gold, predictions)


__all__ = ["Dataset", "Scores", "score_files"]
