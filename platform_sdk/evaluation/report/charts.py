"""The report's pictures as inline SVG. Colours are the page's CSS variables, so they follow light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH = 420
HEIGHT = 220
LEFT, RIGHT, TOP, BOTTOM = 40, 14, 12, 30


@dataclass(frozen=True)
class Interval:
    """A value with its interval, in 0..1; ``colour`` names a CSS variable."""

    label: str
    value: float
    low: float
    high: float
    colour: str


@dataclass(frozen=True)
class Line:
    """A named line over iterations; ``stepped`` draws a value that holds until the next one."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: str
    stepped: bool = False


def interval_plot(rows: Sequence[tuple[str, Sequence[Interval]]]) -> Markup:
    """Draw one row for each metric, in it one value with its 95 % interval for each phase; the axis is in percent."""
    width, gap, inner = 1000, 18, 20
    heights = [inner * len(intervals) + gap for _, intervals in rows]
    height = sum(heights) + 34
    left, right = 130, 30
    highest = max((i.high for _, intervals in rows for i in intervals), default=1.0)
    top = next(edge for edge in (0.1, 0.25, 0.5, 0.75, 1.0) if highest <= edge or edge == 1.0)

    def x(value: float) -> float:
        return left + (width - left - right) * min(value, top) / top

    parts = []
    for tick in range(6):
        value = top * tick / 5
        parts.append(_format('<line x1="{0}" x2="{0}" y1="6" y2="{1}" class="grid"/>', x(value), height - 28))
        parts.append(_text(x(value), height - 10, f"{100 * value:g} %", "tick", "middle"))
    y = 14.0
    for (name, intervals), row in zip(rows, heights, strict=True):
        parts.append(_text(left - 14, y + (row - gap) / 2 + 5, name, "row", "end"))
        for interval in intervals:
            centre = y + inner / 2
            at, low, high = (_percent(share) for share in (interval.value, interval.low, interval.high))
            tip = f"{name}, {interval.label}: {at} ({low} to {high})"
            parts.append(_format('<g style="--c:var(--{0})"><title>{1}</title>', interval.colour, tip))
            parts.append(
                _format(
                    '<line x1="{0}" x2="{1}" y1="{2}" y2="{2}" class="bar"/>', x(interval.low), x(interval.high), centre
                )
            )
            for end in (interval.low, interval.high):
                parts.append(
                    _format('<line x1="{0}" x2="{0}" y1="{1}" y2="{2}" class="cap"/>', x(end), centre - 5, centre + 5)
                )
            parts.append(_format('<circle cx="{0}" cy="{1}" r="5.5" class="dot"/></g>', x(interval.value), centre))
            y += inner
        y += gap
    return _svg(width, height, parts, "Scores with their 95 % intervals for each phase")


def line_chart(title: str, lines: Sequence[Line], *, unit: bool = True) -> Markup:
    """Draw lines over iterations, on an axis of 0..1 (``unit``) or from 0 to the largest value."""
    lines = [line for line in lines if line.points]
    xs = sorted({x for line in lines for x, _ in line.points})
    largest = max((y for line in lines for _, y in line.points), default=1.0)
    top = 1.0 if unit else _round_up(largest)
    first, last = (xs[0], xs[-1]) if xs else (0.0, 1.0)
    spread = (last - first) or 1.0

    def px(x: float) -> float:
        middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
        return middle if first == last else LEFT + 8 + (WIDTH - LEFT - RIGHT - 16) * (x - first) / spread

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top

    parts = []
    for tick in range(5):
        value = top * tick / 4
        parts.append(
            _format('<line x1="{0}" x2="{1}" y1="{2}" y2="{2}" class="grid"/>', LEFT, WIDTH - RIGHT, py(value))
        )
        parts.append(_text(LEFT - 7, py(value) + 4, f"{value:.3g}", "tick", "end"))
    every = max(1, -(-len(xs) // 10))
    for place, x in enumerate(xs):
        if place % every == 0 or x == last:
            parts.append(_text(px(x), HEIGHT - 9, f"{x:g}", "tick", "middle"))
    for line in lines:
        path = _path([(px(x), py(y)) for x, y in line.points], line.stepped)
        parts.append(_format('<g style="--c:var(--{0})"><path d="{1}" class="curve"/>', line.colour, path))
        for x, y in line.points:
            tip = f"{line.label}, iteration {x:g}: {y:.4g}"
            parts.append(
                _format('<circle cx="{0}" cy="{1}" r="3.5" class="dot"><title>{2}</title></circle>', px(x), py(y), tip)
            )
        parts.append(Markup("</g>"))
    return _svg(WIDTH, HEIGHT, parts, title)


def _path(points: Sequence[tuple[float, float]], stepped: bool) -> str:
    commands = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for x, y in points[1:]:
        commands.append(f"H{x:.1f}V{y:.1f}" if stepped else f"L{x:.1f} {y:.1f}")
    return "".join(commands)


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{value:.0f}") - 1) if value >= 1 else 1.0
    while power > value:
        power /= 10
    return next(power * step for step in (1, 2, 4, 5, 8, 10) if power * step >= value)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _format(template: str, *values: float | str) -> Markup:
    return Markup(template).format(*(f"{v:.1f}" if isinstance(v, (int, float)) else v for v in values))


def _text(x: float, y: float, content: str, kind: str, anchor: str) -> Markup:
    return _format('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>', x, y, kind, anchor, content)


def _svg(width: int, height: int, parts: Sequence[Markup], title: str) -> Markup:
    body = Markup("").join(parts)
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}" class="chart">{}</svg>').format(
        width, height, title, body
    )
