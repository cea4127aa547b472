"""Card and metrics of an evaluation; shares are in percent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from platform_sdk.evaluation.cards.figures import amount, count_metrics, name_of, shown_metrics
from platform_sdk.evaluation.cards.markdown import card, table

MAX_VALUES = 8


def scores_card(scores: Mapping[str, Any]) -> str:
    """Return the scores of an evaluation with their intervals.

    Args:
        scores: The content of ``scores.json``.
    """
    counts = count_metrics([scores])
    rows = []
    shown = shown_metrics(scores)
    for metric in [*shown, *(metric for metric in scores["metrics"] if metric not in shown)]:
        score = scores["metrics"][metric]
        low, high = (
            (amount(score[end], count=metric in counts) for end in ("low", "high")) if "low" in score else ("", "")
        )
        interval = f"{low} to {high}" if low else "–"
        rows.append([name_of(metric), amount(score["value"], count=metric in counts), interval])
    decoded = ", each sampled once and answered greedily" if scores.get("attempts", 1) > 1 else ""
    sentence = f"{scores['n']:,} questions{decoded}. Shares in per cent, with 95 % intervals."
    return card(f"Scores: {scores['phase']}", sentence, table(["metric", "score", "95 % interval"], rows, numbers=2))


def metric_values(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the main scores for the Kubeflow UI: shares in percent, one decimal.

    Names of exact match and F1 begin with a capital, so that *Compare runs* lists them first.

    Args:
        scores: The content of ``scores.json``.
    """
    counts = count_metrics([scores])
    values: dict[str, float] = {}
    for metric in shown_metrics(scores)[: MAX_VALUES - 1]:
        value = scores["metrics"][metric]["value"]
        name = re.sub(r"\W+", "_", name_of(metric))
        if metric in counts:
            values[name] = round(value, 2)
        else:
            values[f"{name}_percent"] = round(100 * value, 1)
    return values | {"questions": float(scores["n"])}
