"""Several runs of each recipe: means and intervals over seeds, and their differences on the same questions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from platform_sdk.config.differences import differences
from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.compare import (
    Evaluation,
    Result,
    altered_files,
    evaluations_of,
    last_scores,
    require_different_runs,
    require_same_questions,
)
from platform_sdk.evaluation.intervals import interval_over_seeds, paired_over_seeds
from platform_sdk.evaluation.report.content import HEADLINE, Content, gather
from platform_sdk.evaluation.report.course import course_of

Scores = dict[str, dict[str, float]]  # of each question, by metric


class Spread(Result):
    """Last scores of a recipe's runs; ``low`` and ``high`` are None for a single run."""

    mean: float
    low: float | None
    high: float | None
    values: tuple[float, ...]


class Group(Result):
    """Runs whose recipes are equal but for the seed, each with its ``evaluations``. ``spreads`` are by metric."""

    name: str
    runs: tuple[str, ...]
    seeds: tuple[str, ...]
    spreads: dict[str, Spread]
    evaluations: tuple[tuple[Evaluation, ...], ...]


class GroupDifference(Result):
    """A metric of ``group`` − the same of the first group; see ``paired_over_seeds``."""

    group: str
    metric: str
    n: int
    difference: float
    low: float
    high: float
    p_value: float


class SeedComparison(Result):
    """Groups of runs on the same ``questions`` questions. ``recipes`` are settings and their values in each group."""

    questions: int
    metric: str
    groups: tuple[Group, ...]
    differences: tuple[GroupDifference, ...]
    counts: tuple[str, ...]
    recipes: tuple[tuple[str, tuple[Any, ...]], ...]
    altered: tuple[str, ...] = ()


def compare_seeds(runs: Sequence[Path], *, metric: str = HEADLINE[0], altered: bool = False) -> SeedComparison:
    """Compare runs by their last evaluations; those whose recipes differ in nothing but the seed are one group.

    Args:
        altered: compare runs with altered files too, and report them.

    Raises:
        UserError: a directory holds no run that was evaluated, a file of it was altered, two directories hold one run,
            the runs were evaluated on different questions, or ``metric`` is not among what all measured.
    """
    contents = [gather(run, rollouts=0, altered=altered) for run in runs]
    require_different_runs(contents)
    lasts = [last_scores(content) for content in contents]
    for content, last in zip(contents[1:], lasts[1:], strict=True):
        require_same_questions([contents[0], content], [lasts[0], last])
    members: dict[str, list[int]] = {}
    for place, content in enumerate(contents):
        members.setdefault(json.dumps(_setup(content), sort_keys=True), []).append(place)
    groups = list(members.values())
    for places in groups:
        seeds = [_seed(contents[place]) for place in places]
        repeated = [contents[place] for place, seed in zip(places, seeds, strict=True) if seeds.count(seed) > 1]
        if repeated:
            runs_named = ", ".join(str(content.run_dir) for content in repeated)
            raise UserError(f"compare: {runs_named} are of one recipe and one seed; name one run of each seed")
        require_different_weights([contents[place] for place in places])
    metrics = _shared_metrics(lasts)
    if metric not in metrics:
        raise UserError(f"all runs must have measured {metric}; they have in common: {', '.join(metrics)}")
    counts = frozenset[str]().union(*(content.counts for content in contents))
    names = _names([[contents[place] for place in places] for places in groups])
    return SeedComparison(
        questions=len(lasts[0]),
        metric=metric,
        groups=tuple(
            Group(
                name=name,
                runs=tuple(str(contents[place].run_dir) for place in places),
                seeds=tuple(_seed(contents[place]) for place in places),
                spreads={
                    each: _spread([_column(lasts[place], each) for place in places], share=each not in counts)
                    for each in metrics
                },
                evaluations=tuple(evaluations_of(course_of(contents[place])) for place in places),
            )
            for name, places in zip(names, groups, strict=True)
        ),
        differences=tuple(
            _difference(name, each, [lasts[place] for place in groups[0]], [lasts[place] for place in places])
            for name, places in list(zip(names, groups, strict=True))[1:]
            for each in metrics
        ),
        counts=tuple(sorted(counts)),
        recipes=_changes([_setup(contents[places[0]]) for places in groups]),
        altered=altered_files(contents),
    )


def require_different_weights(group: Sequence[Content]) -> None:
    """Raise a UserError if two runs of a group have trained equal weights, which two seeds never do."""
    seen: dict[str, Content] = {}
    for content in group:
        digests = [entry.digests for entry in content.chain]
        trained = [each["weights"] for each in digests if each.get("weights") not in (None, each.get("parent_weights"))]
        if trained and (other := seen.setdefault(trained[-1], content)) is not content:
            raise UserError(
                f"{content.run_dir} and {other.run_dir} have trained equal weights ({trained[-1][:16]}…), so they are "
                "not two seeds of a recipe; name runs that were made with different seeds"
            )


def _seed(content: Content) -> str:
    return str(content.recipe.get("parameters", {}).get("seed", ""))


def _setup(content: Content) -> dict[str, Any]:
    """Return the recipe without what may differ within a group."""
    parameters = {name: value for name, value in content.recipe.get("parameters", {}).items() if name != "seed"}
    return {"pipeline": content.recipe.get("pipeline"), "parameters": parameters}


def _names(groups: Sequence[Sequence[Content]]) -> list[str]:
    """Return names that tell the groups apart: their recipes', or their first runs' directories'."""
    names = [str(members[0].recipe.get("name", members[0].run_dir.name)) for members in groups]
    return names if len(set(names)) == len(names) else [str(members[0].run_dir) for members in groups]


def _shared_metrics(lasts: Sequence[Scores]) -> list[str]:
    """Return the metrics that all runs have on every question, EM and F1 first."""
    own = [set.intersection(*(set(values) for values in last.values())) for last in lasts]
    return sorted(
        set.intersection(*own), key=lambda name: (HEADLINE.index(name) if name in HEADLINE else len(HEADLINE), name)
    )


def _column(scores: Scores, metric: str) -> list[float]:
    return [scores[question][metric] for question in sorted(scores)]


def _spread(columns: Sequence[Sequence[float]], *, share: bool) -> Spread:
    values = [sum(column) / len(column) for column in columns]
    low, high = interval_over_seeds(values, share=share) if len(values) > 1 else (None, None)
    return Spread(mean=sum(values) / len(values), low=low, high=high, values=tuple(values))


def _difference(name: str, metric: str, first: Sequence[Scores], other: Sequence[Scores]) -> GroupDifference:
    new, old = ([_column(scores, metric) for scores in side] for side in (other, first))
    return GroupDifference(group=name, metric=metric, n=len(old[0]), **paired_over_seeds(new, old)._asdict())


def _changes(setups: Sequence[dict[str, Any]]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return each setting that differs between groups, with its value in each of them."""
    found: dict[str, dict[int, Any]] = {}
    for place, setup in enumerate(setups[1:], start=1):
        for change in differences(setups[0], setup):
            found.setdefault(change.name, {0: change.old})[place] = change.new
    return tuple(
        (name, tuple(values.get(place, values[0]) for place in range(len(setups)))) for name, values in found.items()
    )
