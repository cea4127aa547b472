"""``hopforge evaluate``: any model, trained or not, on any questions, with a recipe's agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_sdk.cli.altered import AlteredOption, warn
from platform_sdk.cli.run import SetOption, run_recipe, show_plan
from platform_sdk.cli.runs import RUNS
from platform_sdk.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.config.recipe import Recipe


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_MODEL",
            help="A run (what it trained): its directory, or its name in runs; or a model as a recipe names it.",
        ),
    ],
    recipe: Annotated[
        Path | None,
        typer.Option(help="Whose method, agent and retrieval answer the questions; by default the run's own recipe."),
    ] = None,
    environment: Annotated[str | None, typer.Option(help="What is searched, e.g. musique, nq, qald-kg.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(metavar="FORMAT=FILE", help="Other questions, e.g. musique=musique/musique_ans_dev.jsonl."),
    ] = None,
    overrides: SetOption = None,
    workdir: Annotated[
        Path | None, typer.Option(help="The run directory; runs/evaluate-NAME-DIGEST if it is not given.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the steps.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end; the progress goes to standard error.")
    ] = False,
    altered: AlteredOption = False,
) -> None:
    """Answer questions with a model, and score the answers; nothing is trained. The same command resumes.

    Corpus and triples of other questions come from --set, e.g. dataset.corpus=musique/corpus.jsonl. Few-shot rows of
    Mujica are --set evaluation.demonstrate=true.
    """
    from platform_sdk.sampling.pairs import models_of
    from platform_sdk.tracking.listing import find_local_run, trained_in
    from platform_sdk.tracking.opened import RECIPE, open_run
    from platform_sdk.tracking.outcomes import digest_of

    run = find_local_run(model, RUNS)
    reports: tuple[str, ...] = ()
    trained = None
    if recipe is None:
        if run is None:
            raise UserError(
                f"{model}: is no run directory and no run in {RUNS}, so say with --recipe whose agent is to answer"
            )
        recipe = run / RECIPE
    given = [f"model={json.dumps(model if run is None else f'run:{run}')}"]
    if run is not None:
        opened = open_run(run, altered=altered)
        warn(reports := opened.altered)
        if not dry_run:
            opened.require_finished()
        trained = trained_in(opened) if opened.finished else None
        # The steps open no altered run, so they get its model's path.
        if reports and (found := trained or _first_model(opened.recipe)):
            given = [f"model={json.dumps(str(found))}"]
    if trained is not None and models_of(trained):
        given.append("worker_model=")  # the run's model is a pair already
    if environment is not None:
        given.append(f"environment={environment}")
    if dataset is not None:
        format, equals, file = dataset.partition("=")
        if not equals:
            raise UserError(f"--dataset {dataset}: must look like FORMAT=FILE, e.g. musique=musique_ans_dev.jsonl")
        given.append(f"dataset={json.dumps({'format': format, 'eval': file})}")
    loaded = _only_evaluating(recipe, [*given, *(overrides or ())])
    run_dir = workdir or RUNS / f"evaluate-{loaded.name}-{digest_of(loaded.resolved())[:12]}"
    if dry_run:
        show_plan(loaded, run_dir, as_json)
        return
    if reports:
        told = "; ".join(reports)
        loaded = replace(loaded, description=f"Warning: the evaluated run {run} has altered files: {told}")
    result, _ = run_recipe(loaded, run_dir, None if quiet else sys.stderr if as_json else sys.stdout)
    result = replace(result, scores=result.scores[-1:])  # nothing was trained: those of the start are the same
    if as_json:
        typer.echo(json.dumps(asdict(result) | {"altered": reports}, indent=1))
    elif not quiet:
        from platform_sdk.cli.progress import print_outcome

        print_outcome(result)


def _first_model(recipe: Mapping[str, Any]) -> str | None:
    """Return the model that a run began with; None if its recipe has none."""
    parameters = recipe.get("parameters")
    model = parameters.get("model") if isinstance(parameters, Mapping) else None
    return model if isinstance(model, str) else None


def _only_evaluating(path: Path, overrides: list[str]) -> Recipe:
    """Load a recipe, or that of a run, so that it trains nothing.

    Raises:
        UserError: its pipeline does not say how.
    """
    from platform_sdk.config.pipeline import find_pipeline
    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.files import read_object

    if path.suffix == ".json":  # what a run was begun with: a recipe, all of its values resolved
        begun = read_object(path).get("pipeline")
        try:
            find_pipeline(str(begun), path)
        except UserError as error:
            raise UserError(
                f"{path.parent}: is a run of pipeline {begun}, which is not one of hopforge's own; add --recipe FILE, "
                "the recipe that the run was made of"
            ) from error
    pipeline = load_recipe(path, overrides).pipeline
    document = pipeline.document
    if not document.evaluation_only:
        raise UserError(
            f"{pipeline.source.name}: has no evaluation_only; add the settings by which nothing is trained, e.g. "
            "evaluation_only: {online.updates: 0}"
        )
    settings = [f"{name}={json.dumps(value)}" for name, value in document.evaluation_only.items()]
    return load_recipe(path, [*overrides, *settings])
