"""A recipe run on this machine, in a run directory that is one recipe's and goes on where it was stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platform_sdk.config.differences import differences
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import Recipe
from platform_sdk.kubeflow.compile import arguments_of, compile_recipe
from platform_sdk.kubeflow.local import Listener, locked, run_local, terminable
from platform_sdk.tracking import RunInfo, finish_run, start_run

FILE = "recipe.json"


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
        info = start_run(run_dir, recipe.resolved())
        order = [task.id for task in recipe.plan]
        try:
            run_local(pipeline, arguments_of(recipe, run_dir), order, run_dir, lock, listener)
        except BaseException as error:
            try:
                finish_run(run_dir, "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
            except UserError as unreached:
                error.add_note(str(unreached))  # it must not hide why the run ended
            raise
        finish_run(run_dir, "FINISHED")
    return info


def claim(run_dir: Path, recipe: Mapping[str, Any]) -> None:
    """Write the resolved recipe into a new run directory; check that it is the one of a begun run.

    Raises:
        UserError: the directory holds a run of another recipe; the message says what differs.
    """
    path = run_dir / FILE
    resolved = json.loads(json.dumps(recipe))
    if not path.exists():
        run_dir.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{FILE}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(resolved, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(path)
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: is not JSON: {error.msg}; choose another --workdir") from error
    changes = list(differences(found, resolved))
    if changes:
        raise UserError(
            f"{run_dir}: holds a run with other parameters; choose another --workdir, or repeat the command that "
            "began it. What differs (there, now):\n" + "\n".join(f"  {change}" for change in changes)
        )


def scores(run_dir: Path) -> list[dict[str, Any]]:
    """The contents of every ``eval-*/scores.json``, in the order they were written."""
    found = sorted(run_dir.glob("eval-*/scores.json"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]


def untrained(run_dir: Path) -> dict[str, str]:
    """The phases whose training had nothing to learn from, and why: their policies were passed on unchanged."""
    reasons = {}
    for path in sorted(run_dir.glob("*/train.json")):
        reason = json.loads(path.read_text(encoding="utf-8")).get("skipped")
        if reason:
            reasons[path.parent.name] = str(reason)
    return reasons
