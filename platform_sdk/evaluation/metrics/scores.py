"""Scores of a prediction file: a column of per-question values for each metric, and their aggregates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from platform_sdk.record_files import RecordError


@dataclass(frozen=True)
class Scores:
    """Per-question values in 0..1, in the order of the gold file.

    ``columns[name][i]`` belongs to ``ids[i]``; a question without a prediction scores 0. ``missing`` counts such
    questions by the missing part of the prediction; ``notes`` are remarks for the reader; ``unknown`` counts
    predictions without a question.
    """

    ids: list[str]
    columns: dict[str, list[float]]
    missing: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unknown: int = 0

    @property
    def n(self) -> int:
        return len(self.ids)

    def means(self) -> dict[str, float]:
        """Return each metric's mean over all questions."""
        return {name: sum(values) / len(values) for name, values in self.columns.items()}

    def per_question(self) -> dict[str, dict[str, float]]:
        """Return ``{question id: {metric: value}}``."""
        names = list(self.columns)
        rows = zip(*self.columns.values(), strict=True)
        return {id_: dict(zip(names, row, strict=True)) for id_, row in zip(self.ids, rows, strict=True)}

    def intervals(self, *, seed: int = 0) -> dict[str, tuple[float, float]]:
        """Return each metric's bootstrap interval; the metrics share their resamples of questions."""
        from platform_sdk.evaluation.intervals import bootstrap_intervals  # numpy only if needed

        return bootstrap_intervals(self.columns, seed=seed)


def count_unknown(ids: Iterable[str], *predicted: Iterable[str]) -> int:
    """Count the distinct ids in ``predicted`` that are not among the gold file's ``ids``."""
    return len(set().union(*predicted).difference(ids))


def require_questions(path: Path, count: int) -> None:
    """Raise RecordError if a gold file holds no question to score."""
    if count == 0:
        raise RecordError(f"{path}: holds no question to score")
