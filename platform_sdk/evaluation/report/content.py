"""What a report shows, gathered from the files of a run directory. It knows records and files, no method."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.intervals import paired_bootstrap
from platform_sdk.records import Rollout, check_header, parse_line
from platform_sdk.tracking import manifest
from platform_sdk.tracking.journal import FOLDER
from platform_sdk.tracking.runs import ENVIRONMENT_FILE

START, FINAL = "eval-start", "eval-final"
HEADLINE = ("em", "f1")
COUNTS = frozenset({"turns", "searches", "tokens"})  # means of counts; all other metrics are shares in 0..1
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
    """One phase of the run: its folder's name, figures, scores, and a sample of its ``total`` rollouts."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] | None = None
    rollouts: list[Rollout] = field(default_factory=list)
    total: int = 0
    accepted: set[str] = field(default_factory=set)


@dataclass
class Content:
    """Everything a report shows. ``chain_error`` says what is wrong with the manifest, if anything is."""

    run_dir: Path
    recipe: dict[str, Any]
    phases: list[Phase]
    differences: list[Difference]
    environment: dict[str, Any]
    corpus_digests: dict[str, Any]
    chain: list[manifest.Entry]
    chain_error: str | None

    @property
    def evaluations(self) -> list[Phase]:
        return [phase for phase in self.phases if phase.scores is not None]

    @property
    def iterations(self) -> list[Phase]:
        return [phase for phase in self.phases if "iteration" in phase.figures and phase.name.startswith("iteration")]

    @property
    def metrics(self) -> list[str]:
        """The metrics of the evaluations, exact match and F1 first."""
        found = dict.fromkeys(metric for phase in self.evaluations for metric in (phase.scores or {})["metrics"])
        return [*(m for m in HEADLINE if m in found), *(m for m in found if m not in HEADLINE)]

    def scores(self, phase: str) -> dict[str, Any] | None:
        return next((found.scores for found in self.phases if found.name == phase), None)


def gather(run_dir: Path, *, rollouts: int) -> Content:
    """Read a run directory, finished or not; of its rollouts at most so many, an equal share of each phase.

    Raises:
        UserError: it is no run directory, or one of its files is not what it should be.
        RecordError: a rollout cannot be read.
    """
    if not (run_dir / "recipe.json").is_file():
        raise UserError(f"{run_dir}: not a run directory (it holds no recipe.json)")
    folders = sorted((path for path in run_dir.iterdir() if path.is_dir()), key=lambda path: _rank(path.name))
    sampled = sum((folder / "rollouts.jsonl").is_file() for folder in folders)
    phases = [_phase(folder, rollouts // max(sampled, 1)) for folder in folders if _is_phase(folder)]
    chain, chain_error = _chain(run_dir)
    content = Content(
        run_dir=run_dir,
        recipe=_object(run_dir / "recipe.json"),
        phases=phases,
        differences=[],
        environment=_object(run_dir / FOLDER / ENVIRONMENT_FILE),
        corpus_digests=_object(run_dir / "corpus" / "digests.json"),
        chain=chain,
        chain_error=chain_error,
    )
    content.differences = _differences(content.scores(START), content.scores(FINAL))
    return content


def amount(metric: str, value: float, *, signed: bool = False) -> str:
    """Write a score: shares in percent, means of counts as they are."""
    text = f"{value:+.2f}" if metric in COUNTS else f"{100 * value:+.1f}"
    return text.replace("-", "−") if signed else text.removeprefix("+")


def _is_phase(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("rollouts.jsonl", "figures.json", "scores.json"))


def _rank(name: str) -> tuple[int, str]:
    if name in FIRST_PHASES:
        return FIRST_PHASES.index(name), name
    if name == FINAL:
        return len(FIRST_PHASES) + 1, name
    return len(FIRST_PHASES), name


def _phase(folder: Path, limit: int) -> Phase:
    phase = Phase(folder.name, figures={**_object(folder / "train.json"), **_object(folder / "figures.json")})
    if (folder / "scores.json").is_file():
        phase.scores = _object(folder / "scores.json")
    if (folder / "selected.jsonl").is_file():
        phase.accepted = {rollout.id for rollout in _complete_rollouts(folder / "selected.jsonl")}
    if (folder / "rollouts.jsonl").is_file():
        phase.rollouts, phase.total = _sample(folder / "rollouts.jsonl", limit)
    return phase


def _sample(path: Path, limit: int) -> tuple[list[Rollout], int]:
    """Return at most ``limit`` rollouts, and how many there are: every phase shows the same questions.

    Questions are taken in the order of a hash of their ids, which is a fair draw and the same in every phase.
    """
    total = 0

    def counted() -> Iterator[Rollout]:
        nonlocal total
        for rollout in _complete_rollouts(path):
            total += 1
            yield rollout

    def order(rollout: Rollout) -> tuple[str, int]:
        return hashlib.sha256(rollout.question.id.encode()).hexdigest(), rollout.attempt

    chosen = heapq.nsmallest(limit, counted(), key=order)
    return sorted(chosen, key=lambda rollout: (rollout.question.id, rollout.attempt)), total


def _complete_rollouts(path: Path) -> Iterator[Rollout]:
    """Yield the rollouts of a file that a running step may still be writing: a line without its end is not yet one."""
    with path.open(encoding="utf-8") as stream:
        check_header(path, stream.readline(), Rollout)
        for number, line in enumerate(stream, start=2):
            if line.endswith("\n"):
                yield parse_line(path, number, line, Rollout)


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


def _chain(run_dir: Path) -> tuple[list[manifest.Entry], str | None]:
    if not (run_dir / manifest.FILE_NAME).is_file():
        return [], None
    try:
        return manifest.verify(run_dir), None
    except manifest.ManifestError as error:
        return [], str(error)


def _object(path: Path) -> dict[str, Any]:
    """Return the JSON object in ``path``; an empty one where the run has not come to writing it."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: must hold a JSON object")
    return content
