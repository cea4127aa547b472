"""A recipe run on this machine, in a run directory that is one recipe's and goes on where it was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.task import RUN_DIR
from platform_sdk.files import read_object
from platform_sdk.kubeflow.claim import claim
from platform_sdk.kubeflow.compile import compile_recipe
from platform_sdk.kubeflow.local import Listener, locked, run_local, terminable
from platform_sdk.tracking import RunInfo, finish_run, start_run


def execute(recipe: Recipe, run_dir: Path, listener: Listener) -> RunInfo:
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
        try:
            run_local(pipeline, {RUN_DIR: str(run_dir.resolve())}, order, run_dir, lock, listener)
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


def scores(run_dir: Path) -> list[dict[str, Any]]:
    """The contents of every ``eval-*/scores.json``, in the order they were written."""
    found = sorted(run_dir.glob("eval-*/scores.json"), key=lambda path: path.stat().st_mtime_ns)
    return [read_object(path) for path in found]


def untrained(run_dir: Path) -> dict[str, str]:
    """The phases whose training had nothing to learn from, and why: their policies were passed on unchanged."""
    reasons = {}
    for path in sorted(run_dir.glob("*/train.json")):
        reason = read_object(path).get("skipped")
        if reason:
            reasons[path.parent.name] = str(reason)
    return reasons
