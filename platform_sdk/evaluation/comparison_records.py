"""Records of a comparison of runs, as ``hopforge compare --json`` prints them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from platform_sdk.evaluation.seed_intervals import Estimator

ROUNDING = 1e-9  # tolerance for comparing scores


class Result(BaseModel):
    """Base of the records of a comparison."""

    model_config = ConfigDict(frozen=True)


class Cost(Result):
    """Cost of a run; see :class:`~platform_sdk.evaluation.report.course.Expenditure`."""

    seconds: float
    sampling_seconds: float
    training_seconds: float
    sync_seconds: float
    credit_seconds: float
    rollouts: int
    trajectories: int
    tokens_sampled: int
    tokens_trained: int
    credit_tokens: int
    optimizer_steps: int | None


class Score(Result):
    """A mean with its 95 % interval, if known."""

    value: float
    low: float | None = None
    high: float | None = None


class Evaluation(Result):
    """An evaluation after ``step`` iterations or updates: the cost up to it, and its scores."""

    phase: str
    step: int
    cost: Cost
    scores: dict[str, Score]


class ComparedRun(Result):
    """One run. ``preparation`` is the part of ``cost`` before the first evaluation: the warm-up."""

    run_dir: str
    seed: str
    pipeline: str
    steps: int
    step: str
    cost: Cost
    preparation: Cost
    evaluations: tuple[Evaluation, ...]

    @property
    def last(self) -> Evaluation:
        return self.evaluations[-1]


class Spread(Result):
    """Last scores of a group's runs, and the 95 % interval of their mean by ``estimator``."""

    mean: float
    low: float
    high: float
    estimator: Estimator
    values: tuple[float, ...]


class Group(Result):
    """A single run, or runs whose recipes are equal but for the seed. ``spreads`` are by metric."""

    name: str
    runs: tuple[ComparedRun, ...]
    spreads: dict[str, Spread]


class Difference(Result):
    """A metric of ``group`` minus the same metric of the first group, paired over ``n`` questions.

    ``low`` and ``high`` are the ends of the 95 % interval by ``estimator``; ``p_value`` is two-sided. ``paired_seeds``
    are the seeds that both groups have, if the difference is between them alone.
    """

    group: str
    metric: str
    n: int
    difference: float
    low: float
    high: float
    p_value: float
    estimator: Estimator
    paired_seeds: tuple[str, ...]


class CostToScore(Result):
    """Mean cost of ``runs`` runs up to their evaluation ``phase``, after ``step`` iterations or updates.

    ``phase`` is the first evaluation at which their mean score is at least the score to reach.
    """

    phase: str
    step: int
    runs: int
    cost: Cost


class TimeToScore(Result):
    """Cost at which each group first shows a score; None for a group that never does."""

    metric: str
    score: float
    groups: tuple[CostToScore | None, ...]

    def ratio(self, figure: str) -> float | None:
        """Return a figure of the second group's cost relative to the first; None if unknown."""
        costs = [getattr(each.cost, figure) if each else None for each in self.groups[:2]]
        return costs[1] / costs[0] if costs[0] and costs[1] is not None else None


class Comparison(Result):
    """Groups of runs on the same ``questions`` questions. ``counts`` are the metrics that are not shares in 0..1.

    ``metric`` leads the comparison. ``reached`` is None if no score is given and the groups have no score in common
    above the first score of all. ``recipes`` are settings with their values in each group. ``altered``
    reports altered files of the runs.
    """

    questions: int
    metric: str
    groups: tuple[Group, ...]
    differences: tuple[Difference, ...]
    reached: TimeToScore | None
    counts: tuple[str, ...]
    recipes: tuple[tuple[str, tuple[Any, ...]], ...]
    altered: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[ComparedRun, ...]:
        return tuple(run for group in self.groups for run in group.runs)

    @property
    def pair(self) -> bool:
        """True for exactly two runs, False for groups of runs."""
        return len(self.runs) == 2

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self.groups[0].spreads)

    def difference(self, metric: str, group: Group | None = None) -> Difference:
        """Return the difference of a group, by default the second, to the first."""
        name = (group or self.groups[1]).name
        return next(each for each in self.differences if (each.group, each.metric) == (name, metric))
