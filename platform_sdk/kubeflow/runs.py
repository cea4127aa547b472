"""Runs of recipes on this machine; a run directory belongs to one recipe, and a stopped run resumes in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.task import RUN_DIR
from platform_sdk.data.dataset import input_digest
from platform_sdk.files import read_object, write_text
from platform_sdk.kubeflow.claim import FILE as CLAIM
from platform_sdk.kubeflow.claim import claim
from platform_sdk.kubeflow.compile import compile_recipe
from platform_sdk.kubeflow.local import Listener, locked, run_local, terminable
from platform_sdk.tracking import RunInfo, finish_run, start_run
from platform_sdk.tracking.completion import complete_since
from platform_sdk.tracking.store import stored_in

STEPS = "logs/steps.json"
"""The names of a run's steps in their order, for watching it."""


def finished_at(recipe: Recipe, run_dir: Path) -> datetime | None:
    """Return when a run of this recipe was finished in ``run_dir``; None if there is something left to be done.

    Raises:
        UserError: another run is at work in ``run_dir``, it holds a run of another recipe, or a file of a finished
            step was altered or removed.
    """
    if not (run_dir / CLAIM).is_file():
        return None
    with locked(run_dir):
        # Where the data lie is a matter of the machine; whether they are the same is asked next.
        claim(run_dir, recipe.resolved(), beside=("parameters.data_dir",))
        if not _has_the_data(recipe, run_dir):
            return None
        since = complete_since(run_dir, [task.id for task in recipe.plan])
    return None if since is None else datetime.fromtimestamp(since / 1000, UTC)


def _has_the_data(recipe: Recipe, run_dir: Path) -> bool:
    """Return whether the recipe's data files are those that were prepared; a recipe may have none."""
    prepared = run_dir / "corpus" / "digests.json"
    if "dataset" not in recipe.parameters or not prepared.is_file():
        return True
    folder = recipe.parameters.get("data_dir")
    now = input_digest(DatasetSpec.model_validate(recipe.parameters["dataset"]), Path(folder) if folder else None)
    return bool(read_object(prepared).get("input") == now)


def execute(recipe: Recipe, run_dir: Path, listener: Listener | None = None) -> RunInfo:
    """Run a recipe to its end, or go on with a run of it that was stopped; tracked in MLflow.

    Raises:
        UserError: another run is at work in ``run_dir``, or it holds a run of another recipe; a component cannot
            be loaded; a step failed (``StepFailed``); or MLflow could not be reached at the end.
        KeyboardInterrupt: SIGINT or SIGTERM ended the run.
    """
    with terminable(), locked(run_dir) as lock:
        claim(run_dir, recipe.resolved())
        pipeline = compile_recipe(recipe)
        info = start_run(run_dir, recipe.resolved(), description=recipe.description)
        order = [task.id for task in recipe.plan]
        write_text(run_dir / STEPS, json.dumps({"steps": order}) + "\n")
        try:
            run_local(pipeline, {RUN_DIR: str(run_dir.resolve())}, order, run_dir, lock, listener or Listener())
        except BaseException as error:
            try:
                finish_run(run_dir, "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
            except (UserError, OSError) as unreached:
                error.add_note(str(unreached))  # it must not hide why the run ended
            raise
        finish_run(run_dir, "FINISHED")
        _remove_temporaries(run_dir)
    return info


def _remove_temporaries(run_dir: Path) -> None:
    """Remove what processes that were killed had not yet renamed; at the end of a run none lives that still would."""
    for path in run_dir.rglob(".*.tmp"):
        path.unlink()


@dataclass(frozen=True)
class Outcome:
    """Outcome of a finished run.

    ``scores`` are the contents of every ``eval-*/scores.json``, in the order they were written. ``untrained`` are the
    phases whose training had nothing to learn from, and why: their policies were passed on unchanged.
    """

    run_dir: str
    scores: list[dict[str, Any]]
    untrained: dict[str, str]
    report: str | None
    tracking_uri: str


def outcome(run_dir: Path) -> Outcome:
    """Read what a run has come to."""
    report = run_dir / "report.html"
    written = sorted(run_dir.glob("eval-*/scores.json"), key=lambda path: path.stat().st_mtime_ns)
    skipped = {path.parent.name: read_object(path).get("skipped") for path in sorted(run_dir.glob("*/train.json"))}
    return Outcome(
        str(run_dir),
        [read_object(path) for path in written],
        {phase: str(reason) for phase, reason in skipped.items() if reason},
        str(report.resolve()) if report.is_file() else None,
        stored_in(run_dir),
    )
