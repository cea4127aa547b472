"""Picture of a study's scores as a self-contained SVG file.

The background is opaque, so the picture is legible on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from markupsafe import Markup

from platform_sdk.evaluation.report.charts import label, shape

WIDTH, ROW, TOP, BOTTOM, GAP = 1000, 26, 48, 58, 36
STYLE = (
    "text{font:13px -apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1d2530}"
    ".tick,.note{fill:#4c5662;font-size:12px}.title{font-weight:600}.grid{stroke:#dcdcd8}.bar,.cap{stroke:#0f766e;stroke-width:2}"
    ".mean{stroke:#0f766e;stroke-width:5}.seed{fill:#ffffff;stroke:#0b4f49;stroke-width:1.2}"
)


@dataclass(frozen=True)
class Score:
    """A metric of a row in percent: the value of each seed, and their mean with its 95 % interval."""

    seeds: tuple[float, ...]
    mean: float
    low: float
    high: float


def score_chart(title: str, metrics: Sequence[str], rows: Sequence[tuple[str, Sequence[Score]]]) -> str:
    """Draw a row for each cell of a study, with a panel for each metric; all panels have the same scale."""
    left = 28 + 7 * max(len(name) for name, _ in rows)
    panel = (WIDTH - left - 24 - GAP * (len(metrics) - 1)) / len(metrics)
    height = TOP + ROW * len(rows) + BOTTOM
    scores = [score for _, row in rows for score in row]
    highest = max(max(score.high, *score.seeds) for score in scores)
    end = min(100, 10 * max(1, ceil(highest / 10)))
    parts = []
    for place, metric in enumerate(metrics):
        start = left + place * (panel + GAP)
        parts.append(label(start, 26, metric, "title", "start"))
        for tick in range(0, end + 1, 10 if end <= 50 else 20):
            at = start + panel * tick / end
            parts.append(shape('<path d="M{0} {1}V{2}" class="grid"/>', at, TOP - 8, height - BOTTOM + 4))
            parts.append(label(at, height - BOTTOM + 20, str(tick), "tick", "middle"))
    for number, (name, row) in enumerate(rows):
        y = TOP + ROW * (number + 0.5)
        parts.append(label(left - 14, y + 4.5, name, "row", "end"))
        for place, score in enumerate(row):
            parts += _marks(score, left + place * (panel + GAP), panel / end, y)
    parts += _legend(left, height - 16)
    frame = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" role="img">\n<title>{2}</title>\n'
        '<style>{3}</style>\n<rect x="0.5" y="0.5" width="{4}" height="{5}" rx="12" fill="#f7f7f5" stroke="#dcdcd8"/>\n'
        "{6}\n</svg>\n"
    )
    return str(frame.format(WIDTH, height, title, Markup(STYLE), WIDTH - 1, height - 1, Markup("\n").join(parts)))


def _marks(score: Score, start: float, scale: float, y: float) -> list[Markup]:
    low, mean, high = (start + scale * value for value in (max(0, score.low), score.mean, min(100, score.high)))
    return [
        shape('<path d="M{0} {2}H{1}" class="bar"/>', low, high, y),
        shape('<path d="M{0} {2}V{3}M{1} {2}V{3}" class="cap"/>', low, high, y - 5, y + 5),
        shape('<path d="M{0} {1}V{2}" class="mean"/>', mean, y - 8, y + 8),
        *(shape('<circle cx="{0}" cy="{1}" r="3.2" class="seed"/>', start + scale * seed, y) for seed in score.seeds),
    ]


def _legend(x: float, y: float) -> list[Markup]:
    return [
        shape('<circle cx="{0}" cy="{1}" r="3.2" class="seed"/>', x + 4, y - 4),
        label(x + 16, y, "seed", "note", "start"),
        shape('<path d="M{0} {1}h36m-36 -5v10m36 -10v10" class="bar" fill="none"/>', x + 68, y - 4),
        shape('<path d="M{0} {1}v16" class="mean"/>', x + 86, y - 12),
        label(
            x + 114, y, "mean in percent with its 95 % interval; for one seed, over questions alone", "note", "start"
        ),
    ]
