"""The report as a self-contained page; its content security policy forbids loading anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from platform_sdk.evaluation.cards.figures import name_of
from platform_sdk.evaluation.report.charts import Interval, interval_plot
from platform_sdk.evaluation.report.content import FINAL, FIRST_PHASES, START, Content, Phase, Verified, gather, kind_of
from platform_sdk.evaluation.report.curves import curves
from platform_sdk.evaluation.report.facts import facts_of
from platform_sdk.evaluation.report.viewer import viewer_data
from platform_sdk.pages import embedded_json, render

FOLDER = Path(__file__).parent
SCRIPTS = (
    "hypergraph.js",
    "export.js",
    "trace.js",
    "subgraph.js",
    "steps.js",
    "trajectory.js",
    "filters.js",
    "page.js",
)
STYLES = ("trajectories.css", "hypergraph.css", "subgraph.css")
ROLLOUTS = 2000
PLOTTED = (*FIRST_PHASES, FINAL)  # evaluations between these are points of a curve
PHASE_COLOURS = {"eval-base": "c-base", START: "c-start", "eval-warmup": "c-start", FINAL: "c-final"}


def build_report(
    run_dir: Path, *, rollouts: int = ROLLOUTS, altered: bool | None = None, verified: Verified | None = None
) -> str:
    """Return a run as one self-contained HTML page.

    Args:
        run_dir: The run directory of a finished or unfinished run.
        rollouts: Most rollouts to embed, spread over the phases; the page gives the total.
        altered: Show a run with altered files too, with warnings.
        verified: The outcome of a verification, to be shown.

    Raises:
        UserError: ``run_dir`` is not a run directory, or one of its files is invalid or was altered.
        RecordError: a rollout cannot be read.
    """
    content = gather(run_dir, rollouts=rollouts, altered=altered)
    content.verified = verified
    folded = _folded(content)
    return render(
        FOLDER / "page.html.j2",
        SCRIPTS,
        STYLES,
        content=content,
        name=str(content.recipe.get("name", run_dir.name)),
        name_of=name_of,
        description=str(content.environment.get("description") or content.recipe.get("description") or ""),
        facts=facts_of(content),
        kind_of=kind_of,
        headlines=_headlines(content, folded),
        changes={change.metric: change for change in content.differences},
        colour=_colour,
        plotted=[phase for phase in content.evaluations if phase.name in PLOTTED],
        between=[phase for phase in content.evaluations if phase.name not in PLOTTED],
        folded=folded,
        intervals=_intervals(content, folded),
        metrics=content.metrics,
        amount=content.amount,
        curves=curves(content),
        attempts=_attempts(content),
        figures=_figures(content),
        updates=_updates(content),
        digests=_digests(content),
        recipe=json.dumps(content.recipe, indent=2, ensure_ascii=False),
        data=embedded_json(
            viewer_data(content.samples) | {"outcome": _outcome(content.recipe), "before": START, "after": FINAL}
        ),
    )


def _headlines(content: Content, folded: Mapping[str, str]) -> list[dict[str, Any]]:
    start, final = content.scores(START), content.scores(FINAL)
    if final is None:
        return []
    changes = {change.metric: change for change in content.differences}
    return [
        {
            "metric": metric,
            "start": (start or {}).get("metrics", {}).get(metric),
            "final": final["metrics"][metric],
            "change": changes.get(metric),
        }
        for metric in content.shown_metrics
        if metric in final["metrics"] and metric in folded
    ]


def _intervals(content: Content, folded: Mapping[str, str]) -> Markup | None:
    rows = []
    for metric, label in folded.items():
        intervals = [
            Interval(phase.name, score["value"], score["low"], score["high"], _colour(phase))
            for phase in content.evaluations
            if phase.name in PLOTTED and (score := (phase.scores or {})["metrics"].get(metric)) and "low" in score
        ]
        if intervals and metric not in content.counts:
            rows.append((label, intervals))
    return interval_plot(rows) if rows else None


def _outcome(recipe: dict[str, Any]) -> str:
    """Return the name of the trained reward."""
    return str(recipe.get("parameters", {}).get("online", {}).get("reward", "reward"))


def _folded(content: Content) -> dict[str, str]:
    """Return the names of the metrics; metrics that are equal on every question are merged into one with all names.

    For example, EM and F1 of one-word answers are one row.
    """
    groups: dict[str, list[str]] = {}
    for metric in content.metrics:
        values = [
            own.get(metric)
            for phase in content.evaluations
            for _, own in sorted((phase.scores or {}).get("per_question", {}).items())
        ]
        varied = len(set(values)) > 1  # metrics that are 0 on every question are not merged
        key = json.dumps([metric in content.counts, values]) if varied else metric
        groups.setdefault(key, []).append(metric)
    return {equal[0]: " = ".join(map(name_of, equal)) for equal in groups.values()}


def _colour(phase: Phase) -> str:
    return PHASE_COLOURS.get(phase.name, "c-other")


def _attempts(content: Content) -> dict[str, Any] | None:
    """Return the attempt histograms as a table: a row for each iteration, shaded by the share of its questions."""
    rows = []
    for phase in content.iterations:
        histogram = phase.figures.get("attempts_histogram")
        if isinstance(histogram, dict) and histogram:
            counts = {int(key): int(count) for key, count in histogram.items()}
            rows.append((phase.figures["iteration"], counts, phase.figures.get("questions_without_accepted")))
    if not rows:
        return None
    columns = list(range(1, max(max(histogram) for _, histogram, _ in rows) + 1))
    return {
        "columns": columns,
        "rows": [
            {
                "iteration": iteration,
                "cells": [
                    {"count": histogram.get(column, 0), "share": round(histogram.get(column, 0) / total, 3)}
                    for column in columns
                ],
                "without": without,
            }
            for iteration, histogram, without in rows
            if (total := sum(histogram.values()))
        ],
    }


def _figures(content: Content) -> dict[str, Any]:
    """Return all plain figures of the phases as a table."""
    phases = [phase for phase in content.phases if phase.figures]
    names = dict.fromkeys(
        name for phase in phases for name, value in phase.figures.items() if isinstance(value, (int, float))
    )
    columns = [name for name in names if name != "iteration"]
    rows = [{"phase": phase.name, "cells": [phase.figures.get(name) for name in columns]} for phase in phases]
    return {"columns": columns, "rows": rows if columns else []}


def _updates(content: Content) -> list[dict[str, Any]]:
    """Return a table for each online phase: a row for each update, a column for each figure."""
    tables = []
    for phase in content.online:
        rows = [
            update.model_dump(exclude={"rewards", "statistics"})
            | update.statistics
            | {f"reward {name}": value for name, value in update.rewards.items()}
            for update in phase.updates
        ]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = [name for name in names if any(isinstance(row.get(name), (int, float)) for row in rows)]
        tables.append(
            {"phase": phase.name, "columns": columns, "rows": [[row.get(name) for name in columns] for row in rows]}
        )
    return tables


def _digests(content: Content) -> list[tuple[str, str]]:
    """Return the names and full digests of the run's inputs."""
    found = {f"corpus · {name}": str(digest) for name, digest in content.corpus_digests.items()}
    for entry in content.chain:
        found |= {f"{entry.event} · {name}": digest for name, digest in entry.digests.items()}
    return list(found.items())
