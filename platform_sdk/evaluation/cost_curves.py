"""Curves of scores against what they cost: time, rollouts, sampled tokens, trajectories trained on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from platform_sdk.evaluation.cards.figures import name_of
from platform_sdk.evaluation.compare import Cost, Evaluation
from platform_sdk.evaluation.report.content import HEADLINE
from platform_sdk.evaluation.report.curves import Curve
from platform_sdk.evaluation.report.lines import Line, line_chart

UNITS = ((2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))  # from, size, name


class Costed(NamedTuple):
    """A run's evaluations on the way, and how it is drawn; ``bounded``: with each score's interval."""

    name: str
    colour: str
    evaluations: Sequence[Evaluation]
    bounded: bool = True


def cost_curves(runs: Sequence[Costed], metric: str, counts: Collection[str]) -> list[Curve]:
    """Draw the metric, the same of greedy answers and what leads reports, as far as they were measured.

    Args:
        counts: metrics that are not shares in 0..1.
    """
    longest = max((run.evaluations[-1].cost.seconds for run in runs if run.evaluations), default=0.0)
    _, size, unit = next(unit for unit in UNITS if longest >= unit[0])
    measured = {name for run in runs for taken in run.evaluations for name in taken.scores}
    axes: list[tuple[str, str, Callable[[Cost], float]]] = [
        ("time", unit, lambda cost: cost.seconds / size),
        ("rollouts", "rollouts", lambda cost: cost.rollouts),
        ("sampled tokens", "tokens", lambda cost: cost.tokens_sampled),
        ("trajectories", "trajectories trained on", lambda cost: cost.trajectories),
    ]
    curves = []
    for shown in dict.fromkeys((metric, f"{metric}_greedy", *HEADLINE)):
        if shown not in measured:
            continue
        for name, axis, spent in axes:
            title, lines = f"{name_of(shown)} against {name}", [_line(run, shown, spent) for run in runs]
            curves.append(Curve(title, lines, line_chart(title, lines, unit=shown not in counts, x=axis), axis))
    return curves


def _line(run: Costed, metric: str, spent: Callable[[Cost], float]) -> Line:
    having = [(taken.cost, taken.scores[metric]) for taken in run.evaluations if metric in taken.scores]
    bounds = [(score.low, score.high) for _, score in having if score.low is not None and score.high is not None]
    return Line(
        run.name,
        [(float(spent(cost)), score.value) for cost, score in having],
        run.colour,
        bounds=bounds if run.bounded and len(bounds) == len(having) else (),
    )
