"""Charts of a report as inline SVG. Colours are CSS variables of the page, so they follow the light or dark theme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Interval:
    """A value with its interval, in 0..1; ``colour`` names a CSS variable."""

    label: str
    value: float
    low: float
    high: float
    colour: str


def interval_plot(rows: Sequence[tuple[str, Sequence[Interval]]]) -> Markup:
    """Draw a row for each metric with a value and 95 % interval for each phase; the axis is in percent."""
    width, gap, inner = 1000, 18, 20
    heights = [inner * len(intervals) + gap for _, intervals in rows]
    height = sum(heights) + 34
    left, right = max(130, 24 + max((8 * len(name) for name, _ in rows), default=0)), 30
    highest = max((i.high for _, intervals in rows for i in intervals), default=1.0)
    top = next(edge for edge in (0.1, 0.25, 0.5, 0.75, 1.0) if highest <= edge or edge == 1.0)

    def x(value: float) -> float:
        return left + (width - left - right) * min(value, top) / top

    parts = []
    for tick in range(6):
        value = top * tick / 5
        parts.append(shape('<line x1="{0}" x2="{0}" y1="6" y2="{1}" class="grid"/>', x(value), height - 28))
        parts.append(label(x(value), height - 10, f"{100 * value:g} %", "tick", "middle"))
    y = 14.0
    for (name, intervals), row in zip(rows, heights, strict=True):
        parts.append(label(left - 14, y + (row - gap) / 2 + 5, name, "row", "end"))
        for interval in intervals:
            centre = y + inner / 2
            at, low, high = (f"{100 * share:.1f} %" for share in (interval.value, interval.low, interval.high))
            tip = f"{name}, {interval.label}: {at} ({low} to {high})"
            parts.append(shape('<g style="--c:var(--{0})"><title>{1}</title>', interval.colour, tip))
            parts.append(
                shape(
                    '<line x1="{0}" x2="{1}" y1="{2}" y2="{2}" class="bar"/>', x(interval.low), x(interval.high), centre
                )
            )
            for end in (interval.low, interval.high):
                parts.append(
                    shape('<line x1="{0}" x2="{0}" y1="{1}" y2="{2}" class="cap"/>', x(end), centre - 5, centre + 5)
                )
            parts.append(shape('<circle cx="{0}" cy="{1}" r="5.5" class="dot"/></g>', x(interval.value), centre))
            y += inner
        y += gap
    return picture(width, height, parts, "Scores with their 95 % intervals for each phase")


def shape(template: str, *values: float | str) -> Markup:
    return Markup(template).format(*(f"{v:.1f}" if isinstance(v, (int, float)) else v for v in values))


def label(x: float, y: float, content: str, kind: str, anchor: str) -> Markup:
    return shape('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>', x, y, kind, anchor, content)


def picture(width: int, height: int, parts: Sequence[Markup], title: str) -> Markup:
    body = Markup("").join(parts)
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}" class="chart">{}</svg>').format(
        width, height, title, body
    )
