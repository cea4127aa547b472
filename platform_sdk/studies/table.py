"""Numbers of a study: scores of each cell over its seeds, compared with the baseline and the paper."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from platform_sdk.evaluation.comparability import (
    Scores,
    altered_files,
    last_scores,
    require_different_runs,
    require_different_weights,
    require_same_questions,
)
from platform_sdk.evaluation.compared_runs import compared_run, cost_to_score
from platform_sdk.evaluation.comparison_records import CostToScore, Result
from platform_sdk.evaluation.report.content import Content, gather
from platform_sdk.evaluation.seed_intervals import (
    SEEDS_TO_AVERAGE,
    Estimator,
    average_difference,
    difference_over_seeds,
    mean_over_seeds,
)
from platform_sdk.studies.study import Cell, Place, Study

Read = tuple[Content, Scores]
Group = Mapping[str, Read]  # by seed
AVERAGE = "average"
"""Level of the study's ``average`` axis in the rows with mean differences over this axis."""


class BaselineDifference(Result):
    """Difference of a metric between a cell and its baseline over ``n`` shared questions.

    ``low`` and ``high`` are the ends of the 95 % interval by ``estimator``. ``paired_seeds`` are the
    seeds that both have, if the difference is between them alone.
    """

    n: int
    difference: float
    low: float
    high: float
    p_value: float
    estimator: Estimator
    paired_seeds: tuple[str, ...]


class CostAtScore(Result):
    """Mean cost of a cell's runs up to ``score`` in the study's first metric; None if they never show it."""

    score: float
    reached: CostToScore | None


class Measurement(Result):
    """A metric of a cell, with the interval of its mean by ``estimator``. ``published`` is in the paper's unit."""

    n: int = 0
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    estimator: Estimator | None = None
    values: tuple[float, ...] = ()
    published: float | None = None
    paired: BaselineDifference | None = None


class Row(Result):
    """A cell with its finished runs, by seed; or, without runs, an average over the cells of an axis.

    ``cost`` is the cost up to the last mean score of its baseline, or for a baseline its own.
    """

    place: Place
    runs: dict[int, str]
    metrics: dict[str, Measurement]
    cost: CostAtScore | None = None


class StudyTable(Result):
    """All cells of a study.

    ``missing`` are the runs that have not finished; ``counts`` are metrics beyond 0..1; ``altered`` reports altered
    files of the runs.
    """

    name: str
    title: str
    axes: tuple[str, ...]
    metrics: tuple[str, ...]
    baseline: dict[str, str]
    average: str | None
    rows: tuple[Row, ...]
    missing: tuple[str, ...]
    counts: tuple[str, ...]
    altered: tuple[str, ...] = ()


def tabulate(study: Study, finished: Mapping[Cell, Path], *, altered: bool | None = None) -> StudyTable:
    """Return the study's table.

    Args:
        finished: the run directory of each cell that has finished.
        altered: read runs with altered files too, and report them.

    Raises:
        UserError: a run's files were altered, or the compared runs answered different questions.
    """
    runs = {
        place: {cell.seed: finished[cell] for cell in study.at(place) if cell in finished} for place in study.places
    }
    read = {place: {str(seed): _read(run, altered) for seed, run in group.items()} for place, group in runs.items()}
    for group in read.values():
        _require_one_set_of_questions(list(group.values()))
        require_different_runs([content for content, _ in group.values()])
        require_different_weights([content for content, _ in group.values()])
    # Two places whose recipes are equal share their runs.
    contents = list({content.run_dir: content for group in read.values() for content, _ in group.values()}.values())
    require_different_runs(contents)
    counts = frozenset[str]().union(*(content.counts for content in contents))
    return StudyTable(
        name=study.name,
        title=study.document.title,
        axes=tuple(study.document.axes),
        metrics=study.document.metrics,
        baseline=study.document.baseline,
        average=study.document.average,
        rows=(
            *(
                Row(
                    place=place,
                    runs={seed: str(run) for seed, run in runs[place].items()},
                    metrics={each: _measured(study, place, each, read, counts) for each in study.document.metrics},
                    cost=_cost(study, place, read),
                )
                for place in study.places
            ),
            *_averages(study, read),
        ),
        missing=tuple(str(cell) for cell in study.cells if cell not in finished),
        counts=tuple(sorted(counts)),
        altered=altered_files(contents),
    )


def _read(run_dir: Path, altered: bool | None) -> Read:
    content = gather(run_dir, rollouts=0, altered=altered)
    return content, last_scores(content)


def _measured(
    study: Study, place: Place, metric: str, read: Mapping[Place, Group], counts: Collection[str]
) -> Measurement:
    published = study.published(place, metric)
    columns = list(_columns(metric, read[place])[0].values())
    if not columns:
        return Measurement(published=published)
    return Measurement(
        **mean_over_seeds(columns, share=metric not in counts)._asdict(),
        n=len(columns[0]),
        values=tuple(sum(column) / len(column) for column in columns),
        published=published,
        paired=_paired(metric, read[place], read.get(study.baseline(place) or (), {})),
    )


def _paired(metric: str, own: Group, base: Group) -> BaselineDifference | None:
    if not base:
        return None
    _require_one_set_of_questions([*list(base.values())[:1], *list(own.values())[:1]])
    first, second = _columns(metric, own, base)
    if not first:
        return None
    n = len(next(iter(first.values())))
    return BaselineDifference(n=n, **difference_over_seeds(first, second)._asdict())


def _averages(study: Study, read: Mapping[Place, Group]) -> Iterator[Row]:
    """Yield a row with the mean differences over the study's ``average`` axis for each combination of other levels.

    A metric has one if at least two seeds of every level and its baseline have finished.
    """
    axis = study.document.average
    if axis is None:
        return
    at = list(study.document.axes).index(axis)
    along: dict[Place, list[tuple[Group, Group]]] = {}
    for place in study.places:
        base = study.baseline(place)
        if base is not None:
            along.setdefault((*place[:at], AVERAGE, *place[at + 1 :]), []).append((read[place], read[base]))
    for place, groups in along.items():
        found = {metric: _average(metric, groups) for metric in study.document.metrics}
        if any(found.values()):
            yield Row(place=place, runs={}, metrics={name: Measurement(paired=one) for name, one in found.items()})


def _average(metric: str, groups: Sequence[tuple[Group, Group]]) -> BaselineDifference | None:
    if any(len(own.keys() & base.keys()) < SEEDS_TO_AVERAGE for own, base in groups):
        return None
    pairs = [(first, second) for own, base in groups for first, second in [_columns(metric, own, base)]]
    if not all(first for first, _ in pairs):
        return None
    n = sum(len(next(iter(first.values()))) for first, _ in pairs)
    return BaselineDifference(n=n, **average_difference(pairs)._asdict())


def _cost(study: Study, place: Place, read: Mapping[Place, Group]) -> CostAtScore | None:
    """Return the cost of a cell up to the score of its baseline; None if it has no baseline or a run lacks the score.

    A baseline has its own cost up to its own score.
    """
    metric = study.document.metrics[0]
    base = read[place] if study.is_baseline(place) else read.get(study.baseline(place) or (), {})
    if not read[place] or not base:
        return None
    [columns] = _columns(metric, base)
    if not columns:
        return None
    score = sum(sum(column) / len(column) for column in columns.values()) / len(columns)
    runs = [compared_run(content) for content, _ in read[place].values()]
    return CostAtScore(score=score, reached=cost_to_score(runs, metric, score))


def _columns(metric: str, *groups: Group) -> list[dict[str, list[float]]]:
    """Return a metric of each run over the questions that have it in all runs; empty if there are none."""
    lasts = [{seed: last for seed, (_, last) in group.items()} for group in groups]
    every = [last for group in lasts for last in group.values()]
    ids = sorted(id for id in (every[0] if every else ()) if all(metric in last.get(id, ()) for last in every))
    return [{seed: [last[id][metric] for id in ids] for seed, last in group.items() if ids} for group in lasts]


def _require_one_set_of_questions(group: Sequence[Read]) -> None:
    require_same_questions([content for content, _ in group], [last for _, last in group])
