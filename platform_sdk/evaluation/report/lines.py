"""Line charts as inline SVG: curves over iterations, updates, time or trajectories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from platform_sdk.evaluation.report.charts import label, picture, shape

WIDTH, HEIGHT = 420, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 12, 30
MAX_DOTS = 40
SMOOTHED = 25  # a longer curve is drawn faint, with the means of this many parts of it on top


@dataclass(frozen=True)
class Line:
    """A named line; ``stepped`` draws a value that holds until the next one.

    ``bounds``, if given, are the ends of each point's interval.
    """

    label: str
    points: Sequence[tuple[float, float]]
    colour: str
    stepped: bool = False
    bounds: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Axis:
    """Linear map from the values ``low`` to ``high`` to the coordinates ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + (self.end - self.start) * share


def line_chart(title: str, lines: Sequence[Line], *, unit: bool = True, x: str = "iteration") -> Markup:
    """Draw at least one line; ``x`` names the horizontal axis.

    For shares (``unit``) the vertical axis ends at 1 or at the smallest round share above all values; otherwise it
    includes zero and all values.
    """
    lines = [line for line in lines if line.points]
    xs = sorted({x for line in lines for x, _ in line.points})
    ys = [y for line in lines for _, y in line.points] + [end for line in lines for pair in line.bounds for end in pair]
    columns = _steps(xs)
    rows = _shares(max(ys)) if unit else ticks(min([0.0, *ys]), max([0.0, *ys]))
    places = Axis(columns[0], max(xs[-1], columns[-1]), LEFT + 8, WIDTH - RIGHT - 8)
    heights = Axis(rows[0], rows[-1], HEIGHT - BOTTOM, TOP)
    parts = []
    for value in rows:
        parts.append(
            shape('<line x1="{0}" x2="{1}" y1="{2}" y2="{2}" class="grid"/>', LEFT, WIDTH - RIGHT, heights(value))
        )
        parts.append(label(LEFT - 7, heights(value) + 4, short(value), "tick", "end"))
    for value in columns:
        parts.append(label(places(value), HEIGHT - 9, short(value), "tick", "middle"))
    for line in lines:
        parts += _drawn(line, places, heights, x)
    return picture(WIDTH, HEIGHT, parts, title)


def ticks(low: float, high: float) -> tuple[float, ...]:
    """Return about four to six evenly spaced round numbers that enclose ``low`` and ``high``."""
    if not high > low:
        return (low, low + 1.0)
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * size for size in (1, 2, 2.5, 5, 10) if power * size >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(number * step, 12) for number in range(first, last + 1))


def short(value: float) -> str:
    """Format a tick: 0.25, 40, 12k, 1.5M, 2e-05."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (abs(value) >= size and value % (size / 10) == 0):
            return f"{value / size:.4g}{letter}"
    return f"{value:.3g}".replace("-", "−")


def _shares(largest: float) -> tuple[float, ...]:
    top = next((edge for edge in (0.1, 0.2, 0.5) if largest <= edge), 1.0)
    return tuple(top * part / 4 for part in range(5))


def _steps(xs: Sequence[float]) -> tuple[float, ...]:
    """Return the ticks of the horizontal axis: the values if few and whole, else round numbers."""
    if len(xs) <= 10 and all(x.is_integer() for x in xs):
        whole = range(int(xs[0]), int(xs[-1]) + 1)
        if len(whole) <= 12:
            return tuple(map(float, whole))
    return tuple(tick for tick in ticks(min(0.0, xs[0]), xs[-1]) if tick <= xs[-1])


def _drawn(line: Line, places: Axis, heights: Axis, x: str) -> list[Markup]:
    at = [(places(px), heights(py)) for px, py in line.points]
    parts = [shape('<g style="--c:var(--{0})">', line.colour)]
    if len(at) > MAX_DOTS:
        parts.append(shape('<path d="{0}" class="curve faint"/>', _path(at, line.stepped)))
        points, dots = _means(line.points), _means(at)
        parts.append(shape('<path d="{0}" class="curve"/>', _path(dots, line.stepped)))
        kind, about = "touch", f"around {x}"
    else:
        points, dots = list(line.points), at
        parts.append(shape('<path d="{0}" class="curve"/>', _path(at, line.stepped)))
        for (place, _), (low, high) in zip(at, line.bounds, strict=False):
            parts.append(
                shape('<line x1="{0}" x2="{0}" y1="{1}" y2="{2}" class="bar"/>', place, heights(low), heights(high))
            )
        kind, about = "dot", x
    for (px, py), (cx, cy) in zip(points, dots, strict=True):
        tip = f"{line.label}, {about} {px:.4g}: {py:.4g}"
        parts.append(
            shape('<circle cx="{0}" cy="{1}" r="3.5" class="{2}"><title>{3}</title></circle>', cx, cy, kind, tip)
        )
    return [*parts, Markup("</g>")]


def _means(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the mean point of each of ``SMOOTHED`` parts of a curve."""
    edges = [round(len(points) * number / SMOOTHED) for number in range(SMOOTHED + 1)]
    parts = [points[first:last] for first, last in pairwise(edges)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


def _path(points: Sequence[tuple[float, float]], stepped: bool) -> str:
    commands = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for x, y in points[1:]:
        commands.append(f"H{x:.1f}V{y:.1f}" if stepped else f"L{x:.1f} {y:.1f}")
    return "".join(commands)
