"""``hopforge run``, ``compile``, ``validate``, ``schema``: what is done with a recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from platform_sdk.cli.terminal import say

RecipeArgument = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="Path to a recipe, e.g. pipelines/mygo/world.yaml.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Override a value, as selection.attempts=4. May be repeated."),
]


def register(app: typer.Typer) -> None:
    app.command("run")(run)
    app.command("compile")(compile_)
    app.command("validate")(validate)
    app.command("schema")(schema)


def run(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    workdir: Annotated[
        Path | None, typer.Option(help="The run directory; runs/NAME of the recipe if it is not given.")
    ] = None,
) -> None:
    """Run a recipe on this machine. The same command on the same directory continues a stopped run."""
    from platform_sdk.config.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or ())
    run_dir = workdir or Path("runs") / loaded.name

    from platform_sdk.cli.progress import Progress, print_outcome
    from platform_sdk.kubeflow.runs import execute, scores, untrained

    try:
        with Progress(loaded.name, run_dir, len(loaded.plan)) as progress:
            info = execute(loaded, run_dir, progress)
    except KeyboardInterrupt as error:
        say("stopped; the same command goes on from here", err=True)
        raise typer.Exit(130) from error
    print_outcome(scores(run_dir), untrained(run_dir), run_dir, info.tracking_uri)


def compile_(
    recipe: RecipeArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write, *.yaml.")],
    overrides: SetOption = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The cluster it is to run on, as pipelines/cluster.yaml; else any directory."
        ),
    ] = None,
) -> None:
    """Write a recipe as a Kubeflow pipeline (IR YAML), with the recipe's values as the parameters' defaults."""
    from platform_sdk.config.cluster import ClusterSpec
    from platform_sdk.config.document import read_as
    from platform_sdk.config.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or ())
    place = None if cluster is None else read_as(ClusterSpec, cluster)

    from platform_sdk.kubeflow.compile import compile_recipe, write_ir

    write_ir(compile_recipe(loaded, place), output)
    say(f"{output}: {len(loaded.plan)} tasks")


def validate(
    recipes: Annotated[list[Path], typer.Argument(metavar="RECIPE…", help="Recipes to check.")],
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the resolved recipes as JSON.")] = False,
) -> None:
    """Check recipes and their pipelines' wiring, and say everything that is wrong."""
    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.config.source import ConfigError, Problem

    problems: list[Problem] = []
    resolved = []
    for path in recipes:
        try:
            loaded = load_recipe(path, overrides or ())
        except ConfigError as error:
            problems += error.problems
            continue
        resolved.append(loaded.resolved())
        if not as_json:
            say(f"{path}: ok ({loaded.pipeline.name}, {len(loaded.plan)} tasks)")
    if problems:
        raise ConfigError(problems)
    if as_json:
        _print_json(resolved[0] if len(resolved) == 1 else resolved)


def schema(
    pipeline: Annotated[
        str | None, typer.Argument(help="A pipeline's name or path: the schema of its recipes.")
    ] = None,
) -> None:
    """Print JSON Schema for editors: of a pipeline's recipes, or of pipeline.yaml itself."""
    from platform_sdk.config.pipeline import find_pipeline, load_pipeline
    from platform_sdk.config.schema import pipeline_schema, recipe_schema

    if pipeline is None:
        _print_json(pipeline_schema())
    else:
        _print_json(recipe_schema(load_pipeline(find_pipeline(pipeline, Path("recipe.yaml")))))


def _print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=1))
