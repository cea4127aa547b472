"""Local runs of recipes. A run directory belongs to one recipe, and a stopped run resumes in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import Recipe
from platform_sdk.data.dataset import input_digest
from platform_sdk.execution.claim import FILE as CLAIM
from platform_sdk.execution.claim import claim
from platform_sdk.execution.local import Listener, StepFailed, walk, warm_worker
from platform_sdk.execution.lock import locked, terminable
from platform_sdk.execution.oom import oom_kills
from platform_sdk.execution.plan import inputs_of
from platform_sdk.files import read_object, write_text
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.tracking import RunInfo, finish_run, start_run
from platform_sdk.tracking.completion import complete_since, is_delivered
from platform_sdk.tracking.manifest import FILE_NAME as MANIFEST
from platform_sdk.tracking.opened import open_run
from platform_sdk.tracking.runs import Failure, Status
from platform_sdk.tracking.store import stored_in

STEPS = RunDir.finished_steps
"""Names of a run's steps in order, for ``hopforge watch``."""


def finished_at(recipe: Recipe, run_dir: Path) -> datetime | None:
    """Return the end time of this recipe's run in ``run_dir``; None if a step still has to run.

    Data missing from the current MLflow store, e.g. for a copied run, is delivered.

    Raises:
        UserError: another run is using ``run_dir``, it contains a run of another recipe, or a file of a finished step
            was altered or removed.
    """
    if not (run_dir / CLAIM).is_file():
        return None
    with locked(run_dir):
        claim(run_dir, recipe.resolved(), moved=True)
        if not has_the_data(recipe, run_dir):
            return None
        since = complete_since(run_dir, [task.id for task in recipe.plan])
        if since is not None and not is_delivered(run_dir):
            from platform_sdk.tracking.delivery import deliver

            deliver(run_dir.resolve())
    return None if since is None else datetime.fromtimestamp(since / 1000, UTC)


def is_finished(recipe: Recipe, run_dir: Path, *, altered: bool | None = None) -> bool:
    """Return True if a run of this recipe has finished in ``run_dir``; change no file.

    Args:
        altered: True if a finished run with altered files counts as finished.

    Raises:
        UserError: as ``finished_at``.
    """
    if not ((run_dir / CLAIM).is_file() or (run_dir / MANIFEST).is_file()):
        return False
    opened = open_run(run_dir, altered=altered)
    if not opened.altered:
        claim(run_dir, recipe.resolved(), moved=True)
    try:
        return opened.finished and has_the_data(recipe, run_dir)
    except UserError as error:
        if error.code not in ("dataset.no-data-dir", "dataset.no-file"):
            raise
        return opened.finished  # results can be read where the data is not


def has_the_data(recipe: Recipe, run_dir: Path) -> bool:
    """Return True if the recipe's data files equal the prepared ones; a recipe may have none."""
    prepared = RunDir(run_dir).corpus_digests
    if "dataset" not in recipe.parameters or not prepared.is_file():
        return True
    folder = recipe.parameters.get("data_dir")
    now = input_digest(DatasetSpec.model_validate(recipe.parameters["dataset"]), Path(folder) if folder else None)
    return bool(read_object(prepared).get("input") == now)


def execute(recipe: Recipe, run_dir: Path, listener: Listener | None = None) -> RunInfo:
    """Run a recipe, or resume its stopped run, with tracking in MLflow.

    Raises:
        UserError: another run uses ``run_dir``, or it contains a run of another recipe; a step failed (``StepFailed``);
            or MLflow could not be reached at the end.
        KeyboardInterrupt: SIGINT or SIGTERM ended the run.
    """
    directory = run_dir.resolve()
    with terminable(), locked(run_dir) as lock:
        claim(run_dir, recipe.resolved())
        info = start_run(run_dir, recipe.resolved(), description=recipe.description)
        order, killed = [task.id for task in recipe.plan], oom_kills()
        write_text(run_dir / STEPS, json.dumps({"steps": order}) + "\n")
        try:
            with warm_worker(run_dir, lock) as worker:
                walk(
                    recipe.plan,
                    lambda task, outputs: inputs_of(task, recipe.parameters, directory, outputs),
                    run_dir,
                    worker,
                    listener or Listener(),
                    {},
                )
        except BaseException as error:
            status: Status = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
            try:
                finish_run(run_dir, status, _failure(error, oom_kills() - killed))
            except (UserError, OSError) as unreached:
                error.add_note(str(unreached))  # must not hide the run's own error
            raise
        finish_run(run_dir, "FINISHED")
        _remove_temporaries(run_dir)
    return info


def _failure(error: BaseException, killed: int) -> Failure | None:
    """Return the record of an error that ends a run; None for an interrupt."""
    if not isinstance(error, Exception):
        return None
    step, code = (error.step, error.exit_code) if isinstance(error, StepFailed) else ("", 0)
    return Failure(str(error), step, code, killed)


def _remove_temporaries(run_dir: Path) -> None:
    """Remove temporary files of killed processes; call this at the end of a run, when no process is writing."""
    for path in run_dir.rglob(".*.tmp"):
        path.unlink()


@dataclass(frozen=True)
class Outcome:
    """Outcome of a finished run.

    ``scores`` are the contents of every ``eval-*/scores.json``, in the order of writing. ``untrained`` are the phases
    without training data and the reasons; their policies are unchanged.
    """

    run_dir: str
    scores: list[dict[str, Any]]
    untrained: dict[str, str]
    report: str | None
    tracking_uri: str


def outcome(run_dir: Path) -> Outcome:
    """Read the outcome of a run."""
    report = RunDir(run_dir).report
    written = sorted(run_dir.glob(f"eval-*/{PhaseDir.scores}"), key=lambda path: path.stat().st_mtime_ns)
    skipped = {
        path.parent.name: read_object(path).get("skipped") for path in sorted(run_dir.glob(f"*/{PhaseDir.train}"))
    }
    return Outcome(
        str(run_dir),
        [read_object(path) for path in written],
        {phase: str(reason) for phase, reason in skipped.items() if reason},
        str(report.resolve()) if report.is_file() else None,
        stored_in(run_dir),
    )
