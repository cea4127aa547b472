"""``hopforge run``, ``compile``, ``validate`` and ``schema``: commands on recipes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from platform_sdk.cli.output import say, say_json
from platform_sdk.config.source import ConfigError, Problem

if TYPE_CHECKING:
    from datetime import datetime

    from platform_sdk.config.recipe import Recipe
    from platform_sdk.execution.runs import Outcome

RecipeArgument = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="Path to a recipe, e.g. pipelines/mygo/world.yaml.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Override a value, e.g. selection.attempts=4. May be repeated."),
]


def run(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    workdir: Annotated[Path | None, typer.Option(help="The run directory (default: runs/NAME of the recipe).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the steps.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end; the progress goes to standard error.")
    ] = False,
) -> None:
    """Run a recipe on this machine. The same command on the same directory resumes a stopped run."""
    from platform_sdk.config.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or ())
    run_dir = workdir or Path("runs") / loaded.name
    if dry_run:
        show_plan(loaded, run_dir, as_json)
        return

    result, since = run_recipe(loaded, run_dir, None if quiet else sys.stderr if as_json else sys.stdout)
    if as_json:
        say_json(asdict(result) | {"finished_before": since is not None}, indent=1)
    elif not quiet:
        from platform_sdk.cli.progress import print_outcome

        print_outcome(result)


def run_recipe(recipe: Recipe, run_dir: Path, out: TextIO | None) -> tuple[Outcome, datetime | None]:
    """Run a recipe on this machine, or resume its run, and print the progress to ``out``.

    Returns:
        The outcome of the run, and the time at which it had finished before, or None.

    Raises:
        Exit: the run was stopped.
    """
    from platform_sdk.cli.progress import Progress
    from platform_sdk.execution.runs import execute, finished_at, outcome
    from platform_sdk.methods.faults import errors
    from platform_sdk.methods.requirements import missing_here

    since = finished_at(recipe, run_dir)
    if since is None:
        if problems := [*errors(recipe), *missing_here(recipe)]:
            raise ConfigError(problems)
        try:
            with Progress(recipe.name, run_dir, len(recipe.plan), out) as progress:
                execute(recipe, run_dir, progress)
        except KeyboardInterrupt as error:
            say("stopped; repeat the command to resume", err=True)
            raise typer.Exit(130) from error
    elif out is not None:
        typer.echo(f"{run_dir}: already finished on {since:%Y-%m-%d at %H:%M} UTC; nothing to do", file=out)
    return outcome(run_dir), since


def show_plan(recipe: Recipe, run_dir: Path, as_json: bool, altered: Sequence[str] = ()) -> None:
    """Print the steps of a recipe, as JSON with the reports of altered files of the run whose model is evaluated."""
    steps = [{"step": task.id, "component": task.component} for task in recipe.plan]
    if as_json:
        plan = {"run_dir": str(run_dir), "pipeline": recipe.pipeline.name, "steps": steps}
        say_json(plan | ({"altered": altered} if altered else {}), indent=1)
        return
    say(f"{recipe.name} ({recipe.pipeline.name}) in {run_dir}: {len(steps)} steps")
    for number, step in enumerate(steps, start=1):
        say(f"{number:>{len(str(len(steps)))}}  {step['step']:<28}  {step['component']}")


def compile_(
    recipe: RecipeArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write, *.yaml.")],
    overrides: SetOption = None,
    cluster: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Description of the cluster (default: the shipped pipelines/cluster.yaml)."),
    ] = None,
) -> None:
    """Write a recipe as a Kubeflow pipeline (IR YAML), with the recipe's values as the parameters' defaults."""
    from platform_sdk.config.cluster import ClusterSpec
    from platform_sdk.config.document import read_as
    from platform_sdk.config.pipeline import home
    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.outputs import check_output

    check_output(output)
    place = read_as(ClusterSpec, cluster or home() / "pipelines/cluster.yaml")
    loaded = load_recipe(recipe, overrides or (), place.environment)

    from platform_sdk.kubeflow.compile import compile_recipe, write_ir

    write_ir(compile_recipe(loaded, place), output)
    say(f"{output}: {len(loaded.plan)} tasks")


def validate(
    recipes: Annotated[list[Path], typer.Argument(metavar="RECIPE…", help="Recipes to check.")],
    overrides: SetOption = None,
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check for this cluster, e.g. pipelines/cluster.yaml.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the resolved recipes as JSON.")] = False,
) -> None:
    """Check recipes and their pipelines' wiring, and print the problems, those of single fields first.

    Missing requirements of this machine (data, models, packages, GPUs) are notes on standard error, not errors, since a
    cluster may have them; hopforge run refuses to start without them. With --cluster these notes are omitted, and
    settings that the cluster's jobs do not support are errors.
    """
    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.methods.faults import errors
    from platform_sdk.methods.requirements import missing_here

    place = None
    if cluster is not None:
        from platform_sdk.config.cluster import ClusterSpec
        from platform_sdk.config.document import read_as

        place = read_as(ClusterSpec, cluster)
    problems: list[Problem] = []
    resolved = []
    for path in recipes:
        try:
            loaded = load_recipe(path, overrides or (), os.environ if place is None else place.environment)
        except ConfigError as error:
            problems += error.problems
            continue
        if wrong := errors(loaded, place):
            problems += wrong
            continue
        resolved.append(loaded.resolved())
        if not as_json:
            say(f"{path}: ok ({loaded.pipeline.name}, {len(loaded.plan)} tasks)")
        for note in [] if place else missing_here(loaded):
            say(f"note: on this machine: {note}", err=True)
    if problems:
        raise ConfigError(problems)
    if as_json:
        say_json(resolved[0] if len(resolved) == 1 else resolved, indent=1)


def schema(
    pipeline: Annotated[
        str | None, typer.Argument(help="A pipeline's name or path, for the schema of its recipes; or teams.")
    ] = None,
) -> None:
    """Print a JSON Schema for editors: of a pipeline's recipes, of pipeline.yaml, or of teams.yaml."""
    from platform_sdk.config.pipeline import find_pipeline, load_pipeline
    from platform_sdk.config.schema import pipeline_schema, recipe_schema, teams_schema

    if pipeline is None:
        content = pipeline_schema()
    elif pipeline == "teams":
        content = teams_schema()
    else:
        content = recipe_schema(load_pipeline(find_pipeline(pipeline, Path("recipe.yaml"))))
    # say_json would take a pattern such as ^https?://[^/@]+$ for a URL with a password.
    typer.echo(json.dumps(content, indent=1))
