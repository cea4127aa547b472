"""Course of a run: cost of each stage, and the scores along the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

from platform_sdk.evaluation.report.content import FINAL, FIRST_PHASES, START, Content, Phase
from platform_sdk.tracking.updates import Preparation, Update

UNTRAINED = "eval-base"
EVALUATION = "eval-"


@dataclass(frozen=True)
class Expenditure:
    """Cost in seconds, rollouts, trajectories and tokens, without evaluations, engine starts and EviPath's synthesis.

    ``rollouts`` are attempts at questions; ``trajectories`` are the dialogues trained on, for all roles, each counted
    as often as it was selected or sampled for training. ``credit_seconds`` and ``credit_tokens``, sampled or scored,
    are the cost of a credit's preparation; ``tokens_sampled`` does not contain them. ``optimizer_steps`` is None if an
    update of an older version is included, which did not record them.
    """

    sampling_seconds: float = 0.0
    training_seconds: float = 0.0
    sync_seconds: float = 0.0
    credit_seconds: float = 0.0
    rollouts: int = 0
    trajectories: int = 0
    tokens_sampled: int = 0
    tokens_trained: int = 0
    credit_tokens: int = 0
    optimizer_steps: int | None = 0

    @property
    def seconds(self) -> float:
        return self.sampling_seconds + self.training_seconds + self.sync_seconds + self.credit_seconds

    def __add__(self, other: Expenditure) -> Expenditure:
        sums = {name: _sum(value, getattr(other, name)) for name, value in vars(self).items()}
        return Expenditure(**sums)


def _sum(one: float | None, other: float | None) -> Any:
    return None if one is None or other is None else one + other


@dataclass(frozen=True)
class Stage:
    """One iteration, update or other phase of sampling and training; an update's name is ``uNNNN``."""

    name: str
    spent: Expenditure


@dataclass(frozen=True)
class Point:
    """An evaluation after ``step`` iterations or updates, and the cost up to it."""

    phase: str
    step: int
    spent: Expenditure
    scores: dict[str, Any]


@dataclass(frozen=True)
class Course:
    """The stages in order; the first ``preparation`` of them precede the first evaluation."""

    stages: tuple[Stage, ...]
    preparation: int
    points: tuple[Point, ...]
    step: str
    """Kind of a step: ``iteration``, ``update``, or ``phase`` if there was neither."""

    @property
    def spent(self) -> Expenditure:
        return total(self.stages)

    @property
    def prepared(self) -> Expenditure:
        return total(self.stages[: self.preparation])


def total(stages: Iterable[Stage]) -> Expenditure:
    return sum((stage.spent for stage in stages), Expenditure())


def course_of(content: Content) -> Course:
    """Return a run's course.

    ``eval-base`` comes first, ``eval-start`` and ``eval-warmup`` after the warm-up, ``eval-NAME`` after the stage of
    that name (``eval-iteration-03``, ``eval-u0050``), ``eval-final`` at the end. Evaluations with other names are left
    out.
    """
    before = [stage for phase in content.phases if phase.name in FIRST_PHASES for stage in _stages(phase)]
    learning = [stage for phase in content.phases if phase.name not in FIRST_PHASES for stage in _stages(phase)]
    stages = [*before, *learning]
    ends = {stage.name: number for number, stage in enumerate(stages, start=1)}
    ends |= {name.removeprefix(EVALUATION): len(before) for name in (START, "eval-warmup")}
    ends |= {UNTRAINED.removeprefix(EVALUATION): 0, FINAL.removeprefix(EVALUATION): len(stages)}
    sums = list(accumulate((stage.spent for stage in stages), initial=Expenditure()))
    points = [
        Point(phase.name, max(0, end - len(before)), sums[end], phase.scores)
        for phase in content.phases
        if phase.scores is not None and (end := ends.get(phase.name.removeprefix(EVALUATION))) is not None
    ]
    points.sort(key=lambda point: (point.step, point.spent.seconds))
    step = "update" if content.online else "iteration" if content.iterations else "phase"
    return Course(tuple(stages), len(before), tuple(points), step)


def _spent(update: Update) -> Expenditure:
    shared = [field.name for field in fields(Expenditure) if field.name in Update.model_fields]
    own = {name: getattr(update, name) for name in shared}
    credit = update.preparation or Preparation(requests=0, tokens=0, seconds=0.0)
    return Expenditure(**own, credit_seconds=credit.seconds, credit_tokens=credit.tokens)


def _stages(phase: Phase) -> list[Stage]:
    if phase.updates:
        return [Stage(f"u{update.update:04d}", _spent(update)) for update in phase.updates]
    figures = phase.figures
    if not figures:
        return []

    def number(name: str) -> float:
        return float(figures.get(name) or 0)

    return [
        Stage(
            phase.name,
            Expenditure(
                sampling_seconds=number("sampling_seconds"),
                training_seconds=number("training_seconds"),
                rollouts=int(number("rollouts")),
                trajectories=int(number("examples")),
                tokens_sampled=int(number("tokens_sampled")),
                tokens_trained=int(number("tokens_trained")),
                optimizer_steps=int(number("steps")),
            ),
        )
    ]
