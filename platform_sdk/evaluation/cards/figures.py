"""Names and units of scores: shares in percent, counts as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from platform_sdk.evaluation.metrics import COUNTS

NAMES = {"em": "EM", "f1": "F1", "kl": "KL", "em_greedy": "EM greedy", "f1_greedy": "F1 greedy"}


def name_of(metric: str) -> str:
    """Return the display name of a metric or figure."""
    return NAMES.get(metric, metric.replace("_", " "))


def amount(value: float, *, count: bool = False, signed: bool = False) -> str:
    """Format a score: a share in percent, the mean of a count as a number."""
    text = f"{value:+.2f}" if count else f"{100 * value:+.1f}"
    return text.replace("-", "−") if signed else text.removeprefix("+")


def duration(seconds: float) -> str:
    """Format a duration: 3.1 s, 12.4 min, 5 h 03 min."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{seconds / 60:.1f} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def count_metrics(evaluations: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the metrics that are not shares in 0..1: counts, and rewards on another scale.

    Args:
        evaluations: The content of ``scores.json`` of each evaluation.
    """
    beyond = {
        metric
        for scores in evaluations
        for values in scores.get("per_question", {}).values()
        for metric, value in values.items()
        if not 0 <= value <= 1
    }
    return COUNTS | beyond


def shown_metrics(scores: Mapping[str, Any]) -> list[str]:
    """Return the leading metrics of a report: the ones named in the method's scores, else EM and F1."""
    return [metric for metric in scores.get("shown") or ("em", "f1") if metric in scores["metrics"]]
