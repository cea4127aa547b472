"""``hopforge plan``: the steps and requirements of a run before it starts, on this machine or on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.output import say, say_json
from platform_sdk.cli.run import RecipeArgument, SetOption
from platform_sdk.errors import UserError

NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Namespace of the team (default: this pod's, else the current context's)."),
]

if TYPE_CHECKING:
    from platform_sdk.planning.cluster import ClusterPlan
    from platform_sdk.planning.history import EarlierRuns
    from platform_sdk.planning.jobs import PlannedJob
    from platform_sdk.planning.local import LocalPlan

MARKS = {"ok": "✓", "failed": "✗", "unseen": "?"}
STATES = {"finished": "finished: a resumed run skips it", "resumes": "started: a resumed run continues it", "runs": ""}


def plan(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    workdir: Annotated[Path | None, typer.Option(help="The run directory (default: runs/NAME of the recipe).")] = None,
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plan a run on the cluster of this file, not on this machine.")
    ] = None,
    namespace: NamespaceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the steps and requirements of a run before it starts.

    For a run on this machine: its steps, the steps that a resumed run skips, disk, memory and downloads. For a run on a
    cluster (--cluster): the steps and their jobs, as the launcher creates them. If KUBECONFIG names a cluster, the plan
    also checks that the cluster accepts each job in a dry run, that the run's Secrets, volume, queue and rights exist,
    and that each job fits into the queue's quota.

    Nothing runs and nothing is downloaded. The exit status is 0 if the run can work, 1 if not.
    """
    from platform_sdk.config.recipe import load_recipe

    if cluster is None and namespace is not None:
        raise UserError("--namespace is for a run on a cluster: add --cluster FILE, or remove --namespace")
    planned: LocalPlan | ClusterPlan
    if cluster is not None:
        from platform_sdk.cli.remote import read_cluster
        from platform_sdk.planning.cluster import plan_on_cluster
        from platform_sdk.planning.connection import connected

        if workdir is not None:
            raise UserError("--workdir is for a run on this machine, --cluster for one on a cluster: remove one option")
        spec = read_cluster(cluster, None)
        place, connection, note = connected(spec, namespace)
        planned = plan_on_cluster(load_recipe(recipe, overrides or (), spec.environment), place, connection)
        if note:
            planned = planned.model_copy(update={"notes": (note, *planned.notes)})
        if not as_json:
            _print_jobs(planned)
    else:
        from platform_sdk.planning.local import plan_here

        loaded = load_recipe(recipe, overrides or ())
        planned = plan_here(loaded, workdir or Path("runs") / loaded.name)
        if not as_json:
            _print(planned)
    if as_json:
        say_json(planned, indent=1)
    else:
        for problem in planned.problems:
            say(f"problem: {problem}", err=True)
    raise typer.Exit(0 if planned.works else 1)


def _print(planned: LocalPlan) -> None:
    from platform_sdk.planning.needs import in_gib

    say(f"{planned.recipe} ({planned.pipeline}) in {planned.run_dir}: {len(planned.steps)} steps")
    width = len(str(len(planned.steps)))
    for number, step in enumerate(planned.steps, start=1):
        say(f"{number:>{width}}  {step.step:<28}  {step.component:<10}  {STATES[step.state]}".rstrip())
    needs = planned.needs
    say(f"disk:      at least {in_gib(needs.disk)} for trained models, {in_gib(needs.disk_free)} free")
    place = (
        "GPU memory for training" if needs.on_gpu else f"for training, this machine has {in_gib(needs.memory_total)}"
    )
    say(f"memory:    at least {in_gib(needs.memory)} {place}")
    for download in needs.downloads:
        size = "size unknown" if download.least_bytes is None else f"at least {in_gib(download.least_bytes)}"
        say(f"download:  {download.kind} {download.name} ({size})")
    if not needs.downloads:
        say("download:  none")
    _print_earlier(planned.earlier)
    for model in needs.uncounted:
        say(f"note: the size of {model} is unknown and not counted")


def _print_jobs(planned: ClusterPlan) -> None:
    pod = planned.step_pod
    say(f"{planned.recipe} ({planned.pipeline}): {len(planned.steps)} steps, {len(planned.jobs)} jobs")
    say(f"pod of each step: {pod.cpu} CPU, {pod.memory} memory, {pod.image}")
    jobs: dict[str, list[PlannedJob]] = {}
    for job in planned.jobs:
        jobs.setdefault(job.step, []).append(job)
    rows: list[tuple[str, ...]] = [("step", "job", "pods", "GPUs", "CPU", "memory", "queue", "priority", "fits")]
    for step in planned.steps:
        rows += [(step.step, *_cells(job, planned)) for job in jobs.get(step.step, ())] or [(step.step, "-", *[""] * 7)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    _print_earlier(planned.earlier)
    for reason in dict.fromkeys(fit.reason for fit in planned.fits.values() if fit.reason):
        say(f"note: {reason}")
    for check in planned.checks:
        say(f"{MARKS[check.state]} {check.subject}" + (f": {check.message}" if check.message else ""))
    for note in planned.notes:
        say(f"note: {note}")


def _print_earlier(earlier: EarlierRuns) -> None:
    if earlier.seconds is None:
        say("duration:  no earlier run with these settings" + (f" is known: {earlier.note}" if earlier.note else ""))
        return
    minutes = round(earlier.seconds / 60)
    time = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{earlier.seconds / 60:.1f} min"
    say(f"duration:  {time} ({_median_of(earlier.runs)} with these settings)")
    if earlier.gpu_hours is not None:
        say(f"GPU-hours: {earlier.gpu_hours:.2f} ({_median_of(earlier.gpu_hour_runs)})")


def _median_of(runs: int) -> str:
    return f"median of {runs} earlier runs" if runs > 1 else "1 earlier run"


def _cells(job: PlannedJob, planned: ClusterPlan) -> tuple[str, ...]:
    """Return the cells of a job's row; GPUs, CPU and memory are a pod's."""
    from platform_sdk.planning.needs import in_gib

    fits = planned.fits[job.name].verdict if job.name in planned.fits else "-"
    cpu, memory = f"{job.requests['cpu']:g}", in_gib(job.requests["memory"])
    return job.kind, str(job.pods), str(job.gpus), cpu, memory, job.queue or "-", job.priority or "-", fits
