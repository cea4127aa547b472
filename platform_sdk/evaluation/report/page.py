"""The report page. Everything it needs is inside; a content security policy forbids it to load anything."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from platform_sdk.evaluation.report.charts import Interval, Line, interval_plot, line_chart
from platform_sdk.evaluation.report.content import COUNTS, FINAL, HEADLINE, START, Content, Phase, amount, gather
from platform_sdk.evaluation.report.viewer import viewer_data

FOLDER = Path(__file__).parent
ROLLOUTS = 2000
NAMES = {"em": "EM", "f1": "F1"}
PHASE_COLOURS = {"eval-base": "c-base", START: "c-start", "eval-warmup": "c-start", FINAL: "c-final"}


def build_report(run_dir: Path, *, rollouts: int = ROLLOUTS) -> str:
    """Return a run as one HTML page that needs nothing else.

    Args:
        run_dir: The run directory, of a finished run or of one on its way.
        rollouts: At most so many rollouts are embedded, an equal share of each phase; the page says how many there are.

    Raises:
        UserError: ``run_dir`` is no run directory, or one of its files is not what it should be.
        RecordError: a rollout cannot be read.
    """
    content = gather(run_dir, rollouts=rollouts)
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html.j2").render(
        content=content,
        name=str(content.recipe.get("name", run_dir.name)),
        names=NAMES,
        counts=COUNTS,
        headlines=_headlines(content),
        changes={change.metric: change for change in content.differences},
        colour=_colour,
        intervals=_intervals(content),
        metrics=content.metrics,
        amount=amount,
        curves=_curves(content),
        attempts=_attempts(content),
        figures=_figures(content),
        digests=_digests(content),
        recipe=json.dumps(content.recipe, indent=2, ensure_ascii=False),
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_digest=digest,
        data=embedded_json(viewer_data(content.phases)),
    )


def embedded_json(value: Any) -> Markup:
    """Return JSON that can stand in a ``<script>`` element: no text in it can end the element or open another."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _headlines(content: Content) -> list[dict[str, Any]]:
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
        for metric in HEADLINE
        if metric in final["metrics"]
    ]


def _intervals(content: Content) -> Markup | None:
    rows = []
    for metric in content.metrics:
        intervals = [
            Interval(phase.name, score["value"], score["low"], score["high"], _colour(phase))
            for phase in content.evaluations
            if (score := (phase.scores or {})["metrics"].get(metric)) and "low" in score
        ]
        if intervals and metric not in COUNTS:
            rows.append((NAMES.get(metric, metric.replace("_", " ")), intervals))
    return interval_plot(rows) if rows else None


def _colour(phase: Phase) -> str:
    return PHASE_COLOURS.get(phase.name, "c-other")


def _curves(content: Content) -> list[dict[str, Any]]:
    """Return the learning curves: each a title, its lines, and its picture."""

    def points(figure: str) -> list[tuple[float, float]]:
        return [
            (float(phase.figures["iteration"]), float(phase.figures[figure]))
            for phase in content.iterations
            if isinstance(phase.figures.get(figure), (int, float))
        ]

    wanted = [
        ("Reward and threshold", True, [
            Line("mean reward r̄ of the first pass", points("mean_reward"), "c-final"),
            Line("threshold K", points("threshold"), "c-threshold", stepped=True),
        ]),
        ("Acceptance", True, [Line("share of attempts accepted", points("acceptance_rate"), "c-accept")]),
        ("Training loss", False, [
            Line("first step", points("loss_first"), "c-start"), Line("last step", points("loss_last"), "c-loss"),
        ]),
        ("Training examples", False, [Line("dialogues trained on", points("examples"), "c-other")]),
    ]  # fmt: skip
    return [
        {"title": title, "lines": [line for line in lines if line.points], "svg": line_chart(title, lines, unit=unit)}
        for title, unit, lines in wanted
        if any(line.points for line in lines)
    ]


def _attempts(content: Content) -> dict[str, Any] | None:
    """Return the attempts histograms as a table: a row for each iteration, a shade for each share of its questions."""
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


def _digests(content: Content) -> list[tuple[str, str]]:
    """Return what the run rests on, each by its name and full digest."""
    found = {f"corpus · {name}": str(digest) for name, digest in content.corpus_digests.items()}
    for entry in content.chain:
        found |= {f"{entry.event} · {name}": digest for name, digest in entry.digests.items()}
    return list(found.items())


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
