"""``hopforge evaluate``: evaluation of any model on any questions with a recipe's agent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_sdk.cli.altered import AlteredOption, warn
from platform_sdk.cli.output import say_json
from platform_sdk.cli.run import SetOption, run_recipe, show_plan
from platform_sdk.cli.runs import RUNS
from platform_sdk.config.source import assignment
from platform_sdk.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.config.recipe import Recipe

TRAINING = frozenset({"train", "online"})
"""Components that change the policy."""


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_MODEL",
            help="A run, whose trained model is evaluated: its directory, or its name in runs/; or a model name.",
        ),
    ],
    recipe: Annotated[
        Path | None,
        typer.Option(help="Recipe with the method, agent and retrieval to use (default: the run's recipe)."),
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="The searched environment, e.g. musique, nq, qald-kg.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(metavar="FORMAT=FILE", help="Other questions, e.g. musique=musique/musique_ans_dev.jsonl."),
    ] = None,
    overrides: SetOption = None,
    workdir: Annotated[
        Path | None, typer.Option(help="The run directory (default: runs/evaluate-NAME-DIGEST).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the steps.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end; the progress goes to standard error.")
    ] = False,
    altered: AlteredOption = False,
) -> None:
    """Answer questions with a model, and score the answers; nothing is trained. The same command resumes.

    Corpus and triples of other questions come from --set, e.g. dataset.corpus=musique/corpus.jsonl. For the
    few-shot rows of Mujica, add --set evaluation.demonstrate=true.
    """
    from platform_sdk.sampling.pairs import models_of
    from platform_sdk.tracking.listing import find_local_run, trained_in
    from platform_sdk.tracking.opened import RECIPE, open_run
    from platform_sdk.tracking.outcomes import digest_of

    run = find_local_run(model, RUNS)
    reports: tuple[str, ...] = ()
    trained, weights = None, ""
    if recipe is None:
        if run is None:
            raise UserError(
                f"{model}: is no run directory and no run in {RUNS}; add --recipe, the recipe whose agent answers"
            )
        recipe = run / RECIPE
    model_overrides = [assignment("model", model if run is None else f"run:{run}")]
    if run is not None:
        opened = open_run(run, altered=altered)
        warn(reports := opened.altered)
        if not dry_run:
            opened.require_finished()
        trained = trained_in(opened) if opened.finished else None
        digests = [entry.digests for entry in opened.entries]
        kinds = ("weights", "base_weights")  # trained in the run; of the model that it starts from
        weights = next((each[kind] for kind in kinds for each in reversed(digests) if kind in each), "")
        # Steps refuse an altered run, so they get the path of its model.
        if reports and (path := trained or _first_model(opened.recipe)):
            model_overrides = [assignment("model", str(path))]
    if trained is not None and models_of(trained):
        model_overrides.append(assignment("worker_model", ""))  # the run's model is a pair already
    if environment is not None:
        model_overrides.append(assignment("environment", environment))
    if dataset is not None:
        format, equals, file = dataset.partition("=")
        if not equals:
            raise UserError(f"--dataset {dataset}: must look like FORMAT=FILE, e.g. musique=musique_ans_dev.jsonl")
        model_overrides.append(assignment("dataset", {"format": format, "eval": file}))
    loaded = _only_evaluating(recipe, [*model_overrides, *(overrides or ())])
    evaluated = loaded.resolved()
    if weights:  # the path names a run, which may be made again with other settings
        evaluated |= {"weights": weights}
    run_dir = workdir or RUNS / f"evaluate-{loaded.name}-{digest_of(evaluated)[:12]}"
    if dry_run:
        show_plan(loaded, run_dir, as_json, reports)
        return
    if reports:
        warning = f"Warning: the evaluated run {run} has altered files: {'; '.join(reports)}"
        loaded = replace(loaded, description=warning)
    result, _ = run_recipe(loaded, run_dir, None if quiet else sys.stderr if as_json else sys.stdout)
    result = replace(result, scores=result.scores[-1:])  # without training, the first scores equal the last
    if as_json:
        say_json(asdict(result) | {"altered": reports}, indent=1)
    elif not quiet:
        from platform_sdk.cli.progress import print_outcome

        print_outcome(result)


def _first_model(recipe: Mapping[str, Any]) -> str | None:
    """Return the model before training; None if the recipe has none."""
    parameters = recipe.get("parameters")
    model = parameters.get("model") if isinstance(parameters, Mapping) else None
    return model if isinstance(model, str) else None


def _only_evaluating(path: Path, overrides: list[str]) -> Recipe:
    """Load a recipe, or the recipe of a run, with the settings for evaluation only.

    Raises:
        UserError: the pipeline has no ``evaluation_only``.
    """
    from platform_sdk.config.pipeline import check_shipped
    from platform_sdk.config.recipe import load_recipe

    if path.suffix == ".json":  # the resolved recipe of a run
        check_shipped(path, "add --recipe FILE, the recipe of the run")
    pipeline = load_recipe(path, overrides).pipeline
    document = pipeline.document
    trains = any(step.component in TRAINING for step, _ in document.placed_steps())
    if trains and not document.evaluation_only:
        raise UserError(
            f"{pipeline.source.name}: has no evaluation_only; add the settings that disable training, e.g. "
            "evaluation_only: {online.updates: 0}"
        )
    return load_recipe(path, [*overrides, *(assignment(*setting) for setting in document.evaluation_only.items())])
