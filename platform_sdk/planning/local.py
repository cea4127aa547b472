"""Plan of a run on this machine."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.struct import Struct
from platform_sdk.methods.faults import errors
from platform_sdk.methods.requirements import GPU_DEVICES, missing_here
from platform_sdk.planning.history import EarlierRuns, earlier_runs
from platform_sdk.planning.needs import Needs, needs_of
from platform_sdk.planning.steps import PlannedStep, fault_of_directory, planned_steps


class LocalPlan(Struct):
    """Steps and needs of a run on this machine. ``problems`` are the reasons why it cannot work."""

    recipe: str
    pipeline: str
    run_dir: str
    steps: tuple[PlannedStep, ...]
    needs: Needs
    earlier: EarlierRuns = EarlierRuns()
    problems: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        return not self.problems


def plan_here(recipe: Recipe, run_dir: Path) -> LocalPlan:
    """Return the plan of a recipe's run in a directory of this machine; nothing is loaded or fetched."""
    problems = [str(problem) for problem in [*errors(recipe), *missing_here(recipe)]]
    try:
        steps = planned_steps(recipe, run_dir)
    except UserError as error:
        problems.append(str(error))
        steps = [PlannedStep(step=task.id, component=task.component) for task in recipe.plan]
    if fault := fault_of_directory(run_dir):
        problems.append(fault)
    has_gpu = any(path for pattern in GPU_DEVICES for path in Path("/dev").glob(pattern))
    needs = needs_of(recipe, run_dir, steps, has_gpu=has_gpu)
    problems += needs.faults(run_dir)
    return LocalPlan(
        recipe=recipe.name,
        pipeline=recipe.pipeline.name,
        run_dir=str(run_dir),
        steps=tuple(steps),
        needs=needs,
        earlier=earlier_runs(recipe, run_dir.absolute().parent),
        problems=tuple(problems),
    )
