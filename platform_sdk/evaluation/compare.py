"""Two runs side by side: what they spent, and how they score on the same questions.

The comparison of Mujica-MyGO, section 4.3.3 and table 7 (MyGO beside GRPO: time and training trajectories at an equal
score), for any two runs, whatever trained them. Times count sampling, training and handing the weights to the engine;
evaluations and the start of engines cost nothing. A score counts as reached at the first evaluation that shows it, and
nothing is read into the curve between two evaluations.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from platform_sdk.config.differences import differences
from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.intervals import paired_bootstrap
from platform_sdk.evaluation.report.content import HEADLINE, Content, gather
from platform_sdk.evaluation.report.course import Course, Expenditure, Point, course_of
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question

QUESTIONS = Path("corpus") / "questions.eval.jsonl"
PERCENT = 100
NAMED = 3  # so many differing questions are named
_ROUNDING = 1e-9


class Result(BaseModel):
    """Base of what a comparison says."""

    model_config = ConfigDict(frozen=True)


class Cost(Result):
    """Cost of a run; see :class:`~platform_sdk.evaluation.report.course.Expenditure`."""

    seconds: float
    sampling_seconds: float
    training_seconds: float
    sync_seconds: float
    rollouts: int
    trajectories: int
    tokens_sampled: int
    tokens_trained: int


class Score(Result):
    """A mean with the ends of its 95 % interval, where there are any."""

    value: float
    low: float | None = None
    high: float | None = None


class Evaluation(Result):
    """An evaluation: after ``step`` iterations or updates, what had been spent until then, and its scores."""

    phase: str
    step: int
    cost: Cost
    scores: dict[str, Score]


class Side(Result):
    """One run. ``preparation`` is the part of ``cost`` before the first evaluation: the warm-up."""

    name: str
    run_dir: str
    pipeline: str
    steps: int
    step: str
    cost: Cost
    preparation: Cost
    evaluations: tuple[Evaluation, ...]

    @property
    def last(self) -> Evaluation:
        return self.evaluations[-1]

    def reached(self, metric: str, score: float) -> Evaluation | None:
        """Return the first evaluation that shows the score."""
        having = (taken for taken in self.evaluations if metric in taken.scores)
        return next((taken for taken in having if taken.scores[metric].value >= score - _ROUNDING), None)


class Difference(Result):
    """A metric of both runs' last evaluations: second − first, paired over the questions that have it in both.

    ``low`` and ``high`` are the ends of the 95 % bootstrap interval; ``p_value`` is two-sided.
    """

    metric: str
    n: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float


class TimeToScore(Result):
    """First point at which either run shows a score, or None.

    ``time`` and ``trajectories`` are second / first; None where one does not show it, or the first spent nothing.
    """

    metric: str
    score: float
    first: Evaluation | None
    second: Evaluation | None
    time: float | None
    trajectories: float | None


class Comparison(Result):
    """Two runs on the same ``questions`` questions. ``counts`` are the metrics that are not shares in 0..1.

    ``metric`` is the one that the comparison leads with. ``reached`` is None if no score is given and the runs have
    no score in common that is above the first score of both: nothing was learned up to it. ``altered`` reports altered
    files of the runs.
    """

    questions: int
    metric: str
    first: Side
    second: Side
    differences: tuple[Difference, ...]
    reached: TimeToScore | None
    counts: tuple[str, ...]
    recipes: tuple[tuple[str, Any, Any], ...]
    altered: tuple[str, ...] = ()

    def difference(self, metric: str) -> Difference:
        return next(found for found in self.differences if found.metric == metric)


def compare(
    first: Path, second: Path, *, metric: str = HEADLINE[0], shown: float | None = None, altered: bool = False
) -> Comparison:
    """Compare two runs by their last evaluations, and on the way to them.

    Args:
        first: a run directory.
        second: another one.
        metric: leads the comparison; its curves are read for where a score is reached.
        shown: that score as tables show it (a share in percent); by default the highest that both runs show, if both
            began below it.
        altered: compare runs with altered files too, and report them.

    Raises:
        UserError: a directory holds no run that was evaluated, a file of it was altered, both are one run, the two were
            evaluated on different questions, or ``metric`` is not among what both measured.
    """
    contents = [gather(run, rollouts=0, altered=altered) for run in (first, second)]
    require_different_runs(contents)
    lasts = [last_scores(content) for content in contents]
    require_same_questions(contents, lasts)
    names = _names(contents)
    one, other = (_side(content, name) for content, name in zip(contents, names, strict=True))
    found = _differences(*lasts)
    if metric not in {difference.metric for difference in found}:
        raise UserError(
            f"both runs must have measured {metric}; they have in common: "
            + ", ".join(difference.metric for difference in found)
        )
    counts = contents[0].counts | contents[1].counts
    score = _score(metric, shown, share=metric not in counts)
    return Comparison(
        questions=len(lasts[0]),
        metric=metric,
        first=one,
        second=other,
        differences=tuple(found),
        reached=_reached(one, other, metric, score),
        counts=tuple(sorted(counts)),
        recipes=tuple(
            (change.name, change.old, change.new)
            for change in differences(contents[0].recipe, contents[1].recipe)
            if change.name not in ("name", "description")
        ),
        altered=altered_files(contents),
    )


def _score(metric: str, shown: float | None, *, share: bool) -> float | None:
    """Return the score to reach in the metric's own unit.

    Raises:
        UserError: ``shown`` is no score of the metric.
    """
    if shown is None:
        return None
    if not isfinite(shown) or (share and not 0 <= shown <= PERCENT):
        allowed = f"a number from 0 to {PERCENT}" if share else "a finite number"
        raise UserError(f"--score {shown:g}: is no score of {metric}; give {allowed}")
    return shown / PERCENT if share else shown


def altered_files(contents: Sequence[Content]) -> tuple[str, ...]:
    """Return the reports of altered files of all runs."""
    return tuple(report for content in contents for report in content.altered)


def require_different_runs(contents: Sequence[Content]) -> None:
    """Raise a UserError if two of the directories are the same, or one is a copy of another."""
    seen: dict[str, Content] = {}
    for content in contents:
        head = content.chain[-1].hash if content.chain else str(content.run_dir.resolve())
        if (other := seen.setdefault(head, content)) is not content:
            same = content.run_dir.resolve() == other.run_dir.resolve()
            fault = "is named twice" if same else f"is a copy of {other.run_dir}"
            raise UserError(f"{content.run_dir}: {fault}; name different runs")


def last_scores(content: Content) -> dict[str, dict[str, float]]:
    """Return the values of each question in the run's last evaluation.

    Raises:
        UserError: the run has no evaluation yet.
    """
    points = course_of(content).points
    if not points:
        raise UserError(f"{content.run_dir}: has no evaluation yet; resume the run until it has one")
    values: dict[str, dict[str, float]] = points[-1].scores["per_question"]
    return values


def require_same_questions(contents: list[Content], lasts: list[dict[str, dict[str, float]]]) -> None:
    """Raise a UserError if the two runs were not evaluated on the same questions."""
    first, second = (set(values) for values in lasts)
    problems = [
        f"{len(only)} {'question was' if len(only) == 1 else 'questions were'} asked in {content.run_dir} alone "
        f"({_some(only)})"
        for content, only in zip(contents, (first - second, second - first), strict=True)
        if only
    ]
    asked = [_questions(content.run_dir) for content in contents]
    for what in ("text", "answers"):
        other = {
            id
            for id in first & second
            if getattr(asked[0].get(id), what, None) != getattr(asked[1].get(id), what, None)
        }
        if other:
            problems.append(f"{len(other)} questions of equal ids differ in their {what} ({_some(other)})")
    if problems:
        raise UserError(
            "the runs were not evaluated on the same questions, so their scores cannot be compared: "
            + "; ".join(problems)
            + ". Compare runs of one dataset, with the same evaluation questions and the same seed of a generated world"
        )


def _questions(run_dir: Path) -> dict[str, Question]:
    return {question.id: question for question in read_jsonl(run_dir / QUESTIONS, Question)}


def _some(ids: set[str]) -> str:
    named = sorted(ids)[:NAMED]
    return ", ".join(named) + (", …" if len(ids) > NAMED else "")


def _names(contents: list[Content]) -> list[str]:
    """Return names that tell the runs apart: those of the recipes, of the directories, or the paths."""
    for names in (
        [str(content.recipe.get("name", content.run_dir.name)) for content in contents],
        [content.run_dir.resolve().name for content in contents],
    ):
        if names[0] != names[1]:
            return names
    return [str(content.run_dir) for content in contents]


def _side(content: Content, name: str) -> Side:
    course = course_of(content)
    return Side(
        name=name,
        run_dir=str(content.run_dir),
        pipeline=str(content.recipe.get("pipeline", "")),
        steps=len(course.stages) - course.preparation,
        step=course.step,
        cost=_cost(course.spent),
        preparation=_cost(course.prepared),
        evaluations=evaluations_of(course),
    )


def evaluations_of(course: Course) -> tuple[Evaluation, ...]:
    """Return the evaluations on the way, each with what had been spent until then."""
    return tuple(_evaluation(point) for point in course.points)


def _evaluation(point: Point) -> Evaluation:
    scores = {
        name: Score(value=score["value"], low=score.get("low"), high=score.get("high"))
        for name, score in point.scores["metrics"].items()
    }
    return Evaluation(phase=point.phase, step=point.step, cost=_cost(point.spent), scores=scores)


def _cost(spent: Expenditure) -> Cost:
    return Cost(seconds=spent.seconds, **vars(spent))


def _differences(first: dict[str, dict[str, float]], second: dict[str, dict[str, float]]) -> list[Difference]:
    measured = dict.fromkeys(metric for values in (*first.values(), *second.values()) for metric in values)
    found = []
    for metric in sorted(measured, key=lambda name: HEADLINE.index(name) if name in HEADLINE else len(HEADLINE)):
        ids = sorted(id for id in first if metric in first[id] and metric in second[id])
        if ids:
            old, new = ([values[id][metric] for id in ids] for values in (first, second))
            paired = paired_bootstrap(new, old)._asdict()
            means = {"first": sum(old) / len(ids), "second": sum(new) / len(ids)}
            found.append(Difference(metric=metric, n=len(ids), **means, **paired))
    return found


def _reached(first: Side, second: Side, metric: str, score: float | None) -> TimeToScore | None:
    if score is None:
        curves = [
            [taken.scores[metric].value for taken in side.evaluations if metric in taken.scores]
            for side in (first, second)
        ]
        score = min(map(max, curves))
        if score <= max(curve[0] for curve in curves) + _ROUNDING:
            return None
    one, other = first.reached(metric, score), second.reached(metric, score)
    time = trajectories = None
    if one is not None and other is not None:
        time = other.cost.seconds / one.cost.seconds if one.cost.seconds else None
        trajectories = other.cost.trajectories / one.cost.trajectories if one.cost.trajectories else None
    return TimeToScore(metric=metric, score=score, first=one, second=other, time=time, trajectories=trajectories)
