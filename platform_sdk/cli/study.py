"""``hopforge study``: a paper's table as a file, with a run for each cell and seed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.altered import AlteredOption, warn
from platform_sdk.cli.application import Application
from platform_sdk.cli.follow import HostOption
from platform_sdk.cli.output import say_json
from platform_sdk.cli.remote import NamespaceOption, read_cluster
from platform_sdk.cli.run import SetOption, run_recipe
from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import Terminal, say
from platform_sdk.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.config.cluster import ClusterSpec
    from platform_sdk.studies.cells import CellState
    from platform_sdk.studies.study import Cell, Study
    from platform_sdk.studies.table import StudyTable

StudyArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A study, e.g. studies/world-mygo.yaml.")]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="AXIS=LEVEL", help="Only these cells, e.g. training=MyGO or seed=0. Repeatable."),
]
FolderOption = Annotated[Path, typer.Option(help="Folder of the run directories.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


study = Application(
    help="Run the cells of a paper's table, and print it with the published values.", no_args_is_help=True
)


@study.command("run")
def run(
    file: StudyArgument,
    overrides: SetOption = None,
    only: OnlyOption = None,
    folder: FolderOption = RUNS,
    cluster: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Submit the cells to this cluster instead of running them here."),
    ] = None,
    namespace: NamespaceOption = None,
    queue: Annotated[str | None, typer.Option(help="The Kueue LocalQueue of their jobs, with --cluster.")] = None,
    host: HostOption = None,
    experiment: Annotated[
        str | None, typer.Option(help="With --cluster: experiment of the runs (default: one named like the pipeline).")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Run the cells of a study that have not finished, one after another, or submit them to a cluster.

    Repeat the command to resume, and to submit the cells that start from the model of a submitted cell. A cell is
    identified by the digest of its recipe, also across studies. If a cell fails or cannot be submitted yet, the others
    still run or are submitted, and the exit status is 1.
    """
    remote = {"--namespace": namespace, "--queue": queue, "--host": host, "--experiment": experiment}
    if cluster is None and (unused := [name for name, value in remote.items() if value is not None]):
        raise UserError(f"{', '.join(unused)}: needs a cluster; add --cluster FILE, or remove it")
    if cluster is not None:
        spec = read_cluster(cluster, queue)
        # Cell names must match the recipes as resolved on the cluster.
        submitted = _load(file, folder, overrides, spec.environment)
        _submit(_chosen(submitted, only), spec, namespace, host, experiment)
        return
    cells = _chosen(_load(file, folder, overrides), only)
    from platform_sdk.studies.cells import run_cells

    def run_cell(cell: Cell) -> None:
        if not quiet:
            say(f"\n[{cells.index(cell) + 1}/{len(cells)}] {cell}")
        run_recipe(cell.recipe, cell.run_dir, None if quiet else sys.stdout)

    failed = []
    for cell, error in run_cells(cells, run_cell):
        if error:
            failed.append(cell)
            say(f"error: {cell}: {error}", err=True)
    if failed:
        names = "; ".join(map(str, failed))
        say(f"\n{len(failed)} of {len(cells)} cells failed: {names}. Repeat the command to try them again", err=True)
        raise typer.Exit(1)


@study.command("status")
def status(
    file: StudyArgument,
    overrides: SetOption = None,
    only: OnlyOption = None,
    folder: FolderOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Show the state and the run directory of each cell. The exit status is 1 if a finished cell was altered."""
    from rich.markup import escape
    from rich.table import Table

    from platform_sdk.studies.cells import state_of

    loaded = _load(file, folder, overrides)
    states = [state_of(cell) for cell in _chosen(loaded, only)]
    if as_json:
        rows = [
            {"place": one.cell.place, "seed": one.cell.seed, "state": one.state, "run_dir": str(one.run_dir),
             "run": one.run, "error": one.error} for one in states
        ]  # fmt: skip
        say_json({"study": loaded.name, "cells": rows}, indent=1)
    else:
        shown = Table(box=None, header_style="bold", pad_edge=False)
        for title in (*loaded.document.axes, "seed", "state", "run"):
            shown.add_column(escape(title))
        for one in states:
            shown.add_row(*map(escape, (*one.cell.place, str(one.cell.seed), one.state, one.run or str(one.run_dir))))
        Terminal().print(shown)
        say(f"{sum(one.state == 'finished' for one in states)} of {len(states)} runs have finished")
    _end_if_altered(states)


@study.command("table")
def table(
    file: StudyArgument,
    overrides: SetOption = None,
    folder: FolderOption = RUNS,
    format: Annotated[
        str | None,
        typer.Option(
            help="markdown, csv, latex or html (default: by the suffix of the output file, otherwise markdown)."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the table to this file.")] = None,
    as_json: JsonOption = False,
    altered: AlteredOption = False,
) -> None:
    """Print a study's table: means, intervals, differences to its baseline, costs up to its score, published values.

    Intervals are over seeds and questions; differences are paired by the seeds that a cell shares with its baseline. An
    interval of one seed is over questions alone, and is marked. The table and its JSON name the estimators.
    Unfinished and altered cells are empty, and listed below the table.
    """
    from platform_sdk.outputs import check_output, write_output
    from platform_sdk.studies.cells import state_of
    from platform_sdk.studies.table import tabulate

    if output is not None:
        check_output(output)
    write = _as_json if as_json else _format(format, output)
    loaded = _load(file, folder, overrides)
    states = [state_of(cell, altered=altered) for cell in loaded.cells]
    finished = {one.cell: one.run_dir for one in states if one.state == "finished"}
    made = tabulate(loaded, finished, altered=altered)
    warn(made.altered)
    if output is not None:
        write_output(output, write(made))
        say(output)
    elif as_json:
        say_json(made, indent=1)
    else:
        say(write(made).removesuffix("\n"))
    _end_if_altered(states)


def _as_json(table: StudyTable) -> str:
    return table.model_dump_json(indent=1) + "\n"


def _format(name: str | None, output: Path | None) -> Callable[[StudyTable], str]:
    """Return the writer of a table for a format name, or for the suffix of the output, or for Markdown."""
    from platform_sdk.studies.formats import FORMATS, SUFFIXES

    if name is None and output is not None:
        if (name := SUFFIXES.get(output.suffix.lower())) is None:
            raise UserError(
                f"{output}: the suffix names no known format; add --format with one of {', '.join(FORMATS)}"
            )
    elif name is not None and name not in FORMATS:
        raise UserError(f"--format {name}: unknown format; choose {', '.join(FORMATS)}")
    return FORMATS[name or "markdown"]


def _end_if_altered(states: Sequence[CellState]) -> None:
    """Print the errors of altered cells and exit with status 1 if there are any."""
    altered = [one for one in states if one.error]
    for one in altered:
        say(f"error: {one.cell}: {one.error}", err=True)
    if altered:
        raise typer.Exit(1)


def _load(file: Path, folder: Path, overrides: list[str] | None, variables: Mapping[str, str] = os.environ) -> Study:
    from platform_sdk.studies.study import load_study

    return load_study(file, folder, overrides or (), variables)


def _chosen(loaded: Study, only: list[str] | None) -> list[Cell]:
    axes = {axis: set(levels) for axis, levels in loaded.document.axes.items()}
    axes["seed"] = {str(seed) for seed in loaded.document.seeds}
    wanted: dict[str, set[str]] = {}
    for option in only or ():
        axis, _, level = option.partition("=")
        if axis not in axes:
            raise UserError(f"--only {option}: {loaded.name} has no axis {axis!r}; its axes are {', '.join(axes)}")
        if level not in axes[axis]:
            levels = ", ".join(sorted(axes[axis]))
            raise UserError(f"--only {option}: {axis} has no level {level!r} in {loaded.name}; its levels are {levels}")
        wanted.setdefault(axis, set()).add(level)
    places = {cell: dict(zip(axes, (*cell.place, str(cell.seed)), strict=True)) for cell in loaded.cells}
    chosen = [cell for cell in loaded.cells if all(places[cell][axis] in some for axis, some in wanted.items())]
    if not chosen:
        raise UserError(f"--only {' '.join(only or ())}: {loaded.name} has no such cell; see hopforge study status")
    return chosen


def _submit(
    cells: Sequence[Cell],
    cluster: ClusterSpec,
    namespace: str | None,
    host: str | None,
    experiment: str | None,
) -> None:
    from platform_sdk.config.source import assignment
    from platform_sdk.kubeflow.lifecycle import run_folder
    from platform_sdk.kubeflow.remote.connection import NotFound, Server
    from platform_sdk.kubeflow.remote.submit import submit
    from platform_sdk.kubeflow.training_job.kueue import check_queueing
    from platform_sdk.studies.cells import Submission, submit_cells

    if note := check_queueing(cluster.job):
        say(note, err=True)
    server = Server(host)

    def submit_cell(cell: Cell, model: Submission | None) -> Submission:
        overrides = list(cell.overrides)
        if model is not None and cell.needs is not None:
            run_dir = run_folder(cluster.workspace.path, cell.needs.recipe.name, model.run_id)
            overrides.append(assignment(cell.model_parameter, f"run:{run_dir}"))
        made = submit(server, cell.path, overrides, cluster, namespace=namespace, experiment=experiment)
        return Submission(run_id=made.run_id, run=made.run, run_url=made.run_url)

    def state(sent: Submission) -> str:
        try:
            return server.ask(server.api.runs.run_service_get_run, sent.run_id).state or "PENDING"
        except NotFound:
            return "deleted"

    waiting = 0
    for cell, sent, reason in submit_cells(cells, submit_cell, state):
        if sent is not None:
            say(f"{cell}: {sent.run}  {sent.run_url}")
        else:
            waiting += 1
            say(f"{cell}: not submitted: {reason}", err=True)
    if waiting:
        say(f"{waiting} of {len(cells)} cells are not submitted", err=True)
        raise typer.Exit(1)
