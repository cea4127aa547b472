"""Comparison of runs on the same questions: scores with paired intervals, and their costs up to a score.

Two runs are two groups of one run each. With three or more runs, runs whose recipes differ only in the seed are a
group.

The costs follow Mujica-MyGO, section 4.3.3 and table 7 (MyGO and GRPO: time and training trajectories at an equal
score). Times count sampling, training and sending the weights to the engine, but no evaluation and no engine start. A
score counts as reached at the first evaluation that shows it; nothing is interpolated between evaluations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from platform_sdk.config.differences import differences
from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.comparability import (
    Scores,
    altered_files,
    last_scores,
    require_different_runs,
    require_different_weights,
    require_same_questions,
)
from platform_sdk.evaluation.compared_runs import common_score, compared_run, cost_to_score, seed_of
from platform_sdk.evaluation.comparison_records import Comparison, Difference, Group, Spread, TimeToScore
from platform_sdk.evaluation.report.content import HEADLINE, Content, gather
from platform_sdk.evaluation.seed_intervals import difference_over_seeds, mean_over_seeds

PERCENT = 100


def compare(
    runs: Sequence[Path], *, metric: str = HEADLINE[0], shown: float | None = None, altered: bool | None = None
) -> Comparison:
    """Compare runs by their last evaluations, and by their cost up to a score.

    Args:
        runs: run directories, at least two.
        metric: leads the comparison, and is the metric of ``shown``.
        shown: the score to reach as tables show it (a share in percent); by default the highest that the means of all
            groups show, if all started below it.
        altered: compare runs with altered files too, and report them.

    Raises:
        UserError: a run has no evaluation or altered files, a run is named twice, two runs of a group have one seed or
            equal weights, the runs were evaluated on different questions, ``metric`` was not measured in all of them,
            or ``shown`` is invalid.
    """
    contents = [gather(run, rollouts=0, altered=altered) for run in runs]
    require_different_runs(contents)
    lasts = [last_scores(content) for content in contents]
    require_same_questions(contents, lasts)
    pair = len(runs) == 2
    members = [[0], [1]] if pair else _groups(contents)
    questions = _questions_by_metric(lasts, complete=not pair)
    if metric not in questions:
        raise UserError(f"all runs must have measured {metric}; they have in common: {', '.join(questions)}")
    counts = frozenset[str]().union(*(content.counts for content in contents))
    score = _score(metric, shown, share=metric not in counts)
    names = _names([[contents[place] for place in places] for places in members], directories=pair)
    columns = {
        each: [
            {seed_of(contents[place]): [lasts[place][id][each] for id in ids] for place in places} for places in members
        ]
        for each, ids in questions.items()
    }
    groups = tuple(
        Group(
            name=name,
            runs=tuple(compared_run(contents[place]) for place in places),
            spreads={each: _spread(list(columns[each][at].values()), share=each not in counts) for each in questions},
        )
        for at, (name, places) in enumerate(zip(names, members, strict=True))
    )
    return Comparison(
        questions=len(lasts[0]),
        metric=metric,
        groups=groups,
        differences=tuple(
            Difference(group=name, metric=each, n=len(ids), **difference_over_seeds(columns[each][at], base)._asdict())
            for at, name in list(enumerate(names))[1:]
            for each, ids in questions.items()
            for base in columns[each][:1]
        ),
        reached=_reached(groups, metric, score),
        counts=tuple(sorted(counts)),
        recipes=_changes([_recipe(contents[places[0]], seed=pair) for places in members]),
        altered=altered_files(contents),
    )


def _groups(contents: Sequence[Content]) -> list[list[int]]:
    """Return the places of the runs of each group: equal recipes but for the seed."""
    members: dict[str, list[int]] = {}
    for place, content in enumerate(contents):
        members.setdefault(json.dumps(_recipe(content, seed=False), sort_keys=True), []).append(place)
    for places in members.values():
        seeds = [seed_of(contents[place]) for place in places]
        repeated = [contents[place] for place, seed in zip(places, seeds, strict=True) if seeds.count(seed) > 1]
        if repeated:
            runs_named = ", ".join(str(content.run_dir) for content in repeated)
            raise UserError(f"compare: {runs_named} are of one recipe and one seed; name one run of each seed")
        require_different_weights([contents[place] for place in places])
    return list(members.values())


def _recipe(content: Content, *, seed: bool) -> dict[str, Any]:
    """Return the compared part of the recipe: everything but its name, description and, if not wanted, the seed."""
    if seed:
        return {name: value for name, value in content.recipe.items() if name not in ("name", "description")}
    parameters = {name: value for name, value in content.recipe.get("parameters", {}).items() if name != "seed"}
    return {"pipeline": content.recipe.get("pipeline"), "parameters": parameters}


def _names(groups: Sequence[Sequence[Content]], *, directories: bool) -> list[str]:
    """Return unique names: of the recipes, of the directories if allowed, else the paths of the first runs."""
    first = [members[0] for members in groups]
    for names in (
        [str(content.recipe.get("name", content.run_dir.name)) for content in first],
        [content.run_dir.resolve().name for content in first] if directories else [],
    ):
        if names and len(set(names)) == len(names):
            return names
    return [str(content.run_dir) for content in first]


def _questions_by_metric(lasts: Sequence[Scores], *, complete: bool) -> dict[str, list[str]]:
    """Return the questions that have a metric in all runs, by metric, EM and F1 first.

    Args:
        complete: leave out metrics that a run lacks on any question.
    """
    measured = sorted(set().union(*(values for last in lasts for values in last.values())))
    questions = {
        metric: sorted(id for id in lasts[0] if all(metric in last[id] for last in lasts))
        for metric in sorted(measured, key=lambda name: HEADLINE.index(name) if name in HEADLINE else len(HEADLINE))
    }
    return {metric: ids for metric, ids in questions.items() if len(ids) == len(lasts[0]) or (ids and not complete)}


def _spread(columns: Sequence[Sequence[float]], *, share: bool) -> Spread:
    values = tuple(sum(column) / len(column) for column in columns)
    return Spread(**mean_over_seeds(columns, share=share)._asdict(), values=values)


def _score(metric: str, shown: float | None, *, share: bool) -> float | None:
    """Return the score to reach in the metric's unit.

    Raises:
        UserError: ``shown`` is not a score of the metric.
    """
    if shown is None:
        return None
    if not isfinite(shown) or (share and not 0 <= shown <= PERCENT):
        allowed = f"a number from 0 to {PERCENT}" if share else "a finite number"
        raise UserError(f"--score {shown:g}: is not a score of {metric}; give {allowed}")
    return shown / PERCENT if share else shown


def _reached(groups: Sequence[Group], metric: str, score: float | None) -> TimeToScore | None:
    if score is None and (score := common_score([group.runs for group in groups], metric)) is None:
        return None
    costs = tuple(cost_to_score(group.runs, metric, score) for group in groups)
    return TimeToScore(metric=metric, score=score, groups=costs)


def _changes(recipes: Sequence[dict[str, Any]]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return each setting that differs between groups, with its value in each of them."""
    changed: dict[str, dict[int, Any]] = {}
    for place, recipe in enumerate(recipes[1:], start=1):
        for change in differences(recipes[0], recipe):
            changed.setdefault(change.name, {0: change.old})[place] = change.new
    return tuple(
        (name, tuple(values.get(place, values[0]) for place in range(len(recipes)))) for name, values in changed.items()
    )
