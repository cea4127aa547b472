"""Steps of a run in order, and which of them a resumed run would skip."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from platform_sdk.config.recipe import Recipe
from platform_sdk.config.struct import Struct
from platform_sdk.config.task import Task
from platform_sdk.execution.claim import FILE as CLAIM
from platform_sdk.execution.claim import claim
from platform_sdk.execution.lock import is_locked
from platform_sdk.execution.step import step_name
from platform_sdk.tracking.completion import complete_since, finished_steps
from platform_sdk.tracking.journal import step_file

State = Literal["finished", "resumes", "runs"]


class PlannedStep(Struct):
    """A step of a run.

    Attributes:
        state: ``finished``: its results exist, and a resumed run reads them; ``resumes``: it has started before;
            ``runs``: it has not started.
    """

    step: str
    component: str
    state: State = "runs"


def planned_steps(recipe: Recipe, run_dir: Path) -> list[PlannedStep]:
    """Return the steps of a recipe with their states in a run directory, which may not exist.

    Raises:
        UserError: the directory contains a run of another recipe, or a file of a finished step was altered
            or removed.
    """
    finished: set[str] = set()
    if (run_dir / CLAIM).is_file():
        complete = complete_since(run_dir, [task.id for task in recipe.plan]) is not None
        claim(run_dir, recipe.resolved(), moved=complete)
        finished = finished_steps(run_dir)
    return [PlannedStep(step=task.id, component=task.component, state=_state(task, recipe, run_dir, finished))
            for task in recipe.plan]  # fmt: skip


def fault_of_directory(run_dir: Path) -> str | None:
    """Return the reason why no run can start in a directory now, or None."""
    if run_dir.exists() and not run_dir.is_dir():
        return f"{run_dir}: is a file, but a run needs a directory; choose another --workdir"
    if is_locked(run_dir):
        return f"{run_dir}: another run is using this directory; wait for it, or choose another --workdir"
    return None


def _state(task: Task, recipe: Recipe, run_dir: Path, finished: set[str]) -> State:
    if "." in task.component:  # a user's step, whose name in the records is unknown
        return "runs"
    phase = recipe.known_inputs(task, run_dir).get("phase", "policy" if task.component == "policy" else "")
    name = step_name(task.component, phase)
    if name in finished:
        return "finished"
    return "resumes" if step_file(run_dir, name).is_file() else "runs"
