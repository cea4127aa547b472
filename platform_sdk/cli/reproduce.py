"""``hopforge reproduce``: a second run of a finished run's recipe, compared step by step."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.output import say, say_json
from platform_sdk.cli.run import run_recipe
from platform_sdk.cli.runs import RUNS
from platform_sdk.errors import UserError
from platform_sdk.run_dir import RunDir

if TYPE_CHECKING:
    from platform_sdk.tracking.reproduction import Reproduction


def reproduce(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A finished run: its directory, its name in --folder, or its id in MLflow."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The directory of the second run.")],
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the data files, if they are in another place now.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the comparison only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end; the progress goes to standard error.")
    ] = False,
) -> None:
    """Run a finished run's recipe again in a new directory, and compare the results of every step.

    The digests of data, index, rollouts, selections, weights and scores are compared. At a difference, the first step
    that differs is named, and what differed when the two runs began: hopforge's source, Python, packages, machine, the
    datasets' files. The same command resumes a stopped reproduction. The exit status is 0 if all steps are equal, 1
    if a step differs, and 2 if the command fails.
    """
    from platform_sdk.config.pipeline import check_shipped
    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.config.source import assignment
    from platform_sdk.tracking.listing import find_run_dir
    from platform_sdk.tracking.opened import RECIPE, open_run

    run_dir = find_run_dir(run, folder)
    if output.resolve() == run_dir.resolve():
        raise UserError(f"{output}: is the run to reproduce; name a new directory with -o")
    original = open_run(run_dir, full=True)
    original.require_finished()
    check_shipped(run_dir / RECIPE, "run its recipe again with hopforge run, and compare the two with hopforge compare")
    recipe = load_recipe(run_dir / RECIPE, [] if data_dir is None else [assignment("data_dir", data_dir)])
    recipe = replace(
        recipe, description=f"Reproduction of {run_dir.resolve().name}, manifest {original.entries[-1].head}"
    )
    run_recipe(recipe, output, None if quiet else sys.stderr)
    found = compared(run_dir, output)
    if as_json:
        content = {"equal": found.equal, "first": found.first.step if found.first else None, **found.model_dump()}
        say_json(content, indent=1)
    else:
        _print(found)
    raise typer.Exit(0 if found.equal else 1)


def compared(original: Path, repeated: Path) -> Reproduction:
    """Compare two runs of one recipe after verifying their files."""
    from platform_sdk.files import read_object
    from platform_sdk.tracking.opened import open_run
    from platform_sdk.tracking.reproduction import (
        Reproduction,
        compare_circumstances,
        compare_steps,
        results_of,
    )

    first, second = open_run(original), open_run(repeated)
    environments = [read_object(RunDir(folder).environment) for folder in (original, repeated)]
    return Reproduction(
        original=str(original),
        repeated=str(repeated),
        head=first.entries[-1].head,
        steps=compare_steps(results_of(original, first.entries), results_of(repeated, second.entries)),
        circumstances=compare_circumstances(first.entries, second.entries, (environments[0], environments[1])),
    )


def _print(found: Reproduction) -> None:
    equal = sum(step.equal for step in found.steps)
    if found.first is None:
        say(f"{found.original}: reproduced; all {equal} steps have equal results in {found.repeated}")
    else:
        steps = f"{equal} of {len(found.steps)} steps"
        say(f"{found.original}: not reproduced; {steps} have equal results in {found.repeated}")
        say(f"first difference, in step {found.first.step}:")
        for difference in found.first.differences:
            say(f"  {difference}")
    for number, difference in enumerate(found.circumstances):
        if number == 0:
            say("different when the runs began:")
        say(f"  {difference}")
    if not found.circumstances:
        say("equal when the runs began: hopforge's source, Python, packages, machine, the datasets' files")
