"""Runs as comparisons and study tables read them, and the cost at which a group of runs reaches a score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from platform_sdk.evaluation.comparison_records import ROUNDING, ComparedRun, Cost, CostToScore, Evaluation, Score
from platform_sdk.evaluation.report.content import Content
from platform_sdk.evaluation.report.course import Course, Expenditure, course_of


def compared_run(content: Content) -> ComparedRun:
    """Return a run with its cost and evaluations."""
    course = course_of(content)
    return ComparedRun(
        run_dir=str(content.run_dir),
        seed=seed_of(content),
        pipeline=str(content.recipe.get("pipeline", "")),
        steps=len(course.stages) - course.preparation,
        step=course.step,
        cost=_cost(course.spent),
        preparation=_cost(course.prepared),
        evaluations=_evaluations(course),
    )


def seed_of(content: Content) -> str:
    """Return the seed of a run's recipe; empty if the recipe has none."""
    return str(content.recipe.get("parameters", {}).get("seed", ""))


def common_score(groups: Sequence[Sequence[ComparedRun]], metric: str) -> float | None:
    """Return the highest score that the means of all groups reach; None if a group starts there."""
    curves = [[score for _, _, score in _curve(runs, metric)] for runs in groups]
    if not all(curves):
        return None
    score = min(map(max, curves))
    return score if score > max(curve[0] for curve in curves) + ROUNDING else None


def cost_to_score(runs: Sequence[ComparedRun], metric: str, score: float) -> CostToScore | None:
    """Return the mean cost of runs up to the first evaluation at which their mean score is at least ``score``.

    Only evaluations that all of the runs have count; the score between two evaluations is not interpolated.
    """
    for phase, step, mean in _curve(runs, metric):
        if mean >= score - ROUNDING:
            costs = [each.cost for run in runs for each in run.evaluations if each.phase == phase]
            return CostToScore(phase=phase, step=step, runs=len(runs), cost=_mean(costs))
    return None


def _curve(runs: Sequence[ComparedRun], metric: str) -> Iterator[tuple[str, int, float]]:
    """Yield phase, step and mean score of each evaluation that all of the runs have."""
    scores = [
        {each.phase: each.scores[metric].value for each in run.evaluations if metric in each.scores} for run in runs
    ]
    for each in runs[0].evaluations:
        if all(each.phase in found for found in scores):
            yield each.phase, each.step, sum(found[each.phase] for found in scores) / len(scores)


def _mean(costs: Sequence[Cost]) -> Cost:
    """Return the mean of costs, with counts rounded."""
    means = {}
    for name in Cost.model_fields:
        values = [getattr(cost, name) for cost in costs]
        mean = None if None in values else sum(values) / len(values)
        means[name] = mean if mean is None or name.endswith("seconds") else round(mean)
    return Cost.model_validate(means)


def _evaluations(course: Course) -> tuple[Evaluation, ...]:
    return tuple(
        Evaluation(
            phase=point.phase,
            step=point.step,
            cost=_cost(point.spent),
            scores={
                name: Score(value=score["value"], low=score.get("low"), high=score.get("high"))
                for name, score in point.scores["metrics"].items()
            },
        )
        for point in course.points
    )


def _cost(spent: Expenditure) -> Cost:
    return Cost(seconds=spent.seconds, **vars(spent))
