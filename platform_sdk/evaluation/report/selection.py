"""The figures of a phase that is learned from, as Markdown, for the pipeline's Markdown artifact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def build_selection(figures: Mapping[str, Any]) -> str:
    """Return a table of a phase's figures, and one of each histogram among them.

    Args:
        figures: The phase's ``figures.json``.
    """
    single = {name: value for name, value in figures.items() if name != "phase" and isinstance(value, int | float)}
    histograms = {name: value for name, value in figures.items() if isinstance(value, Mapping)}
    lines = [f"# {figures['phase']}: selection for training", "", *_table("figure", "value", single)]
    for name, counts in histograms.items():
        lines += ["", *_table(name.replace("_", " "), "count", counts)]
    return "\n".join(lines) + "\n"


def _table(left: str, right: str, rows: Mapping[str, Any]) -> list[str]:
    return [
        f"| {left} | {right} |",
        "| --- | ---: |",
        *(f"| {name.replace('_', ' ')} | {_shown(value)} |" for name, value in rows.items()),
    ]


def _shown(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"
