"""Content of a report, read from the files of a run directory. Independent of the method."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from platform_sdk.config.differences import ABSENT
from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.cards.figures import amount, count_metrics
from platform_sdk.evaluation.intervals import paired_bootstrap
from platform_sdk.evaluation.phase_statistics import Statistics, read_statistics
from platform_sdk.evaluation.report.samples import SELECTED_FILE, Sample, draw, share, size, sources
from platform_sdk.files import REMEDY, read_object
from platform_sdk.run_dir import FINAL_EVALUATION, START_EVALUATION, PhaseDir, RunDir
from platform_sdk.tracking import manifest
from platform_sdk.tracking.findings import Verification
from platform_sdk.tracking.opened import open_run
from platform_sdk.tracking.updates import Update, read_updates

START, FINAL = START_EVALUATION, FINAL_EVALUATION
HEADLINE = ("em", "f1")  # leading metrics of a run whose scores name none
FIRST_PHASES = ("eval-base", "warmup", START, "eval-warmup")


@dataclass(frozen=True)
class Difference:
    """Mean of after − before over the same questions, with its 95 % interval and two-sided p value."""

    metric: str
    n: int
    value: float
    low: float
    high: float
    p_value: float


@dataclass
class Phase:
    """A phase of the run: its folder's name, figures, scores, updates (of an online phase), and some rollouts.

    ``statistics`` describe the phase's training data, if a step of the method wrote some.
    """

    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] | None = None
    updates: list[Update] = field(default_factory=list)
    statistics: Statistics | None = None
    samples: list[Sample] = field(default_factory=list)


@dataclass(frozen=True)
class Verified:
    """Outcome of a verification, and its time (UTC)."""

    verification: Verification
    time: datetime


@dataclass
class Content:
    """Everything a report shows. ``altered`` reports the run's altered files; see ``open_run``.

    ``verified`` is the outcome of ``hopforge verify`` for the page, with its time (UTC); None if it was not called.
    """

    run_dir: Path
    recipe: dict[str, Any]
    phases: list[Phase]
    differences: list[Difference]
    environment: dict[str, Any]
    corpus_digests: dict[str, Any]
    chain: list[manifest.Entry]
    altered: tuple[str, ...]
    verified: Verified | None = None

    @property
    def evaluations(self) -> list[Phase]:
        return [phase for phase in self.phases if phase.scores is not None]

    @property
    def iterations(self) -> list[Phase]:
        return [phase for phase in self.phases if "iteration" in phase.figures and phase.name.startswith("iteration")]

    @property
    def online(self) -> list[Phase]:
        return [phase for phase in self.phases if phase.updates]

    @property
    def samples(self) -> list[Sample]:
        return [sample for phase in self.phases for sample in phase.samples]

    @cached_property
    def counts(self) -> frozenset[str]:
        """The metrics that are not shares in 0..1: counts, and rewards on another scale."""
        return count_metrics(phase.scores or {} for phase in self.evaluations)

    @property
    def shown_metrics(self) -> tuple[str, ...]:
        """The leading metrics of the report, as named in the run's scores."""
        named = [(phase.scores or {}).get("shown") for phase in self.evaluations]
        return tuple(next(filter(None, named), HEADLINE))

    @property
    def metrics(self) -> list[str]:
        """The metrics of the evaluations, the shown ones first."""
        found = dict.fromkeys(metric for phase in self.evaluations for metric in (phase.scores or {})["metrics"])
        shown = self.shown_metrics
        return [*(m for m in shown if m in found), *(m for m in found if m not in shown)]

    def amount(self, metric: str, value: float, *, signed: bool = False) -> str:
        """Format a score of this run; see :func:`amount`."""
        return amount(value, count=metric in self.counts, signed=signed)

    def scores(self, phase: str) -> dict[str, Any] | None:
        return next((found.scores for found in self.phases if found.name == phase), None)


def gather(run_dir: Path, *, rollouts: int, altered: bool | None = None) -> Content:
    """Read a run directory, finished or not.

    Args:
        rollouts: Most rollouts to read, spread over the phases.
        altered: Read a run with altered files too.

    Raises:
        UserError: ``run_dir`` is not a run directory, or one of its files is invalid or was altered.
        RecordError: a rollout cannot be read.
    """
    opened = open_run(run_dir, altered=altered)
    folders = sorted((path for path in run_dir.iterdir() if path.is_dir()), key=lambda path: _rank(path.name))
    phases = [_phase(folder) for folder in folders if _is_phase(folder)]
    found = [(phase, *source) for phase in phases for source in sources(run_dir / phase.name)] if rollouts else []
    sizes = [size(paths) for _, _, paths in found]
    most = share(sizes, rollouts)
    for (phase, name, paths), total in zip(found, sizes, strict=True):
        phase.samples.append(draw(name, paths, total, most, run_dir / phase.name / SELECTED_FILE))
    # The report is a step itself: exclude its own events, so that building it again gives the same page.
    ends = ("step report", "run ended")
    content = Content(
        run_dir=run_dir,
        recipe=opened.recipe,
        phases=phases,
        differences=[],
        environment=_object(RunDir(run_dir).environment),
        corpus_digests=_object(RunDir(run_dir).corpus_digests),
        chain=[entry for entry in opened.entries if not entry.event.startswith(ends)],
        altered=opened.altered,
    )
    content.differences = _differences(content.scores(START), content.scores(FINAL))
    return content


def p_text(p_value: float) -> str:
    """Format a p value with its relation: = 0.013, < 0.001."""
    return "< 0.001" if p_value < 0.001 else f"= {p_value:.3f}"


def kind_of(low: float, high: float) -> str:
    """Return good, bad or even for an interval above, below or around zero."""
    return "good" if low > 0 else "bad" if high < 0 else "even"


def setting_text(value: Any) -> str:
    """Format a recipe's setting in a comparison of recipes."""
    return "–" if value == ABSENT else json.dumps(value, ensure_ascii=False)


def _is_phase(folder: Path) -> bool:
    files = (PhaseDir.rollouts, PhaseDir.figures, PhaseDir.train, PhaseDir.scores, PhaseDir.updates)
    return any((folder / name).is_file() for name in files)


def _rank(name: str) -> tuple[int, int, str]:
    """Return a key that sorts phases: those without a number (teaching) first, then by number, then by name."""
    if name in FIRST_PHASES:
        return FIRST_PHASES.index(name), 0, name
    if name == FINAL:
        return len(FIRST_PHASES) + 1, 0, name
    number = re.search(r"\d+$", name)
    return len(FIRST_PHASES), int(number[0]) if number else 0, name


def _phase(folder: Path) -> Phase:
    path = PhaseDir(folder).scores
    scores = read_object(path) if path.is_file() else None
    if scores is not None and not isinstance(scores.get("metrics"), dict):
        raise UserError(f"{path}: has no metrics, so it was altered; {REMEDY}")
    return Phase(
        folder.name,
        figures={**_object(PhaseDir(folder).train), **_object(PhaseDir(folder).figures)},
        scores=scores,
        updates=read_updates(folder),
        statistics=read_statistics(folder),
    )


def _differences(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[Difference]:
    if before is None or after is None:
        return []
    old, new = before.get("per_question", {}), after.get("per_question", {})
    shared = sorted(old.keys() & new.keys())
    found = []
    for metric in after["metrics"]:
        ids = [id for id in shared if metric in old[id] and metric in new[id]]
        if ids:
            result = paired_bootstrap([new[id][metric] for id in ids], [old[id][metric] for id in ids])
            found.append(Difference(metric, len(ids), *result))
    return found


def _object(path: Path) -> dict[str, Any]:
    """Return the JSON object in ``path``, or an empty one if the file does not exist yet."""
    return read_object(path) if path.is_file() else {}
