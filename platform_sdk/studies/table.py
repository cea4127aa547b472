"""Numbers of a study: scores of each cell over its seeds, compared with the baseline and the paper."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from platform_sdk.evaluation.comparability import (
    Scores,
    altered_files,
    last_scores,
    require_different_runs,
    require_different_weights,
    require_same_questions,
)
from platform_sdk.evaluation.comparison_records import Result
from platform_sdk.evaluation.intervals import bootstrap_interval, interval_over_seeds, paired_over_seeds
from platform_sdk.evaluation.report.content import Content, gather
from platform_sdk.studies.study import Cell, Place, Study

Read = tuple[Content, Scores]


class BaselineDifference(Result):
    """Difference of a metric between a cell and its baseline over ``n`` shared questions; see ``paired_over_seeds``."""

    n: int
    difference: float
    low: float
    high: float
    p_value: float


class Measurement(Result):
    """A metric of a cell.

    The interval is Student's over the seeds, or of a single run the bootstrap's over the questions. ``published`` is in
    the paper's unit.
    """

    n: int = 0
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    values: tuple[float, ...] = ()
    published: float | None = None
    paired: BaselineDifference | None = None


class Row(Result):
    """A cell with its finished runs, by seed."""

    place: Place
    runs: dict[int, str]
    metrics: dict[str, Measurement]


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
    rows: tuple[Row, ...]
    missing: tuple[str, ...]
    counts: tuple[str, ...]
    altered: tuple[str, ...] = ()


def tabulate(study: Study, finished: Mapping[Cell, Path], *, altered: bool = False) -> StudyTable:
    """Return the study's table.

    Args:
        finished: the run directory of each cell that has finished.
        altered: read runs with altered files too, and report them.

    Raises:
        UserError: a run's files were altered, or runs that are to be compared answered different questions.
    """
    runs = {
        place: {cell.seed: finished[cell] for cell in study.at(place) if cell in finished} for place in study.places
    }
    read = {place: [_read(run, altered) for run in group.values()] for place, group in runs.items()}
    for group in read.values():
        _require_one_set_of_questions(group)
        require_different_weights([content for content, _ in group])
    contents = [content for group in read.values() for content, _ in group]
    require_different_runs(contents)
    counts = frozenset[str]().union(*(content.counts for group in read.values() for content, _ in group))
    return StudyTable(
        name=study.name,
        title=study.document.title,
        axes=tuple(study.document.axes),
        metrics=study.document.metrics,
        baseline=study.document.baseline,
        rows=tuple(
            Row(
                place=place,
                runs={seed: str(run) for seed, run in runs[place].items()},
                metrics={metric: _measured(study, place, metric, read, counts) for metric in study.document.metrics},
            )
            for place in study.places
        ),
        missing=tuple(str(cell) for cell in study.cells if cell not in finished),
        counts=tuple(sorted(counts)),
        altered=altered_files(contents),
    )


def _read(run_dir: Path, altered: bool) -> Read:
    content = gather(run_dir, rollouts=0, altered=altered)
    return content, last_scores(content)


def _measured(
    study: Study, place: Place, metric: str, read: Mapping[Place, Sequence[Read]], counts: Collection[str]
) -> Measurement:
    published = study.published(place, metric)
    columns = _columns(metric, read[place])
    if not columns:
        return Measurement(published=published)
    values = [sum(column) / len(column) for column in columns]
    seeds = len(values) > 1
    low, high = interval_over_seeds(values, share=metric not in counts) if seeds else bootstrap_interval(columns[0])
    return Measurement(
        n=len(columns[0]),
        mean=sum(values) / len(values),
        low=low,
        high=high,
        values=tuple(values),
        published=published,
        paired=_paired(metric, read[place], read.get(study.baseline(place) or (), ())),
    )


def _paired(metric: str, own: Sequence[Read], base: Sequence[Read]) -> BaselineDifference | None:
    if not base:
        return None
    _require_one_set_of_questions([base[0], own[0]])
    columns = _columns(metric, [*own, *base])
    if not columns:
        return None
    paired = paired_over_seeds(columns[: len(own)], columns[len(own) :])
    return BaselineDifference(n=len(columns[0]), **paired._asdict())


def _columns(metric: str, group: Sequence[Read]) -> list[list[float]]:
    """Return a metric of each run over the questions that have it in all runs; empty if there are none."""
    lasts = [last for _, last in group]
    ids = sorted(id for id in (lasts[0] if lasts else ()) if all(metric in last[id] for last in lasts))
    return [[last[id][metric] for id in ids] for last in lasts] if ids else []


def _require_one_set_of_questions(group: Sequence[Read]) -> None:
    require_same_questions([content for content, _ in group], [last for _, last in group])
