"""``hopforge gc``: delete orphaned jobs on a cluster, and Workflows without a run."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.follow import HostOption
from platform_sdk.cli.output import say_json
from platform_sdk.cli.terminal import say
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.access import HOST

if TYPE_CHECKING:
    from platform_sdk.kubeflow.remote.workflows import Workflow
    from platform_sdk.kubeflow.training_job.reaper import Orphan


def gc(
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Namespace of the jobs (default: this pod's).")
    ] = None,
    silent_minutes: Annotated[
        float,
        typer.Option(
            min=2,
            help="Minutes without a launcher's heartbeat. A launcher waits up to 30 minutes for the API.",
        ),
    ] = 45,
    workflows: Annotated[
        bool,
        typer.Option("--workflows", help="Also delete hopforge's Workflows without a run in Kubeflow Pipelines."),
    ] = False,
    host: HostOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the objects to delete.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Delete the unfinished jobs of terminated or killed runs.

    Only PyTorchJobs, TrainJobs and batch Jobs that hopforge's steps created are deleted. While a step runs, its
    launcher writes a heartbeat into the job every minute.

    A failed request to create a run may leave a Workflow without a run. Such Workflows are listed if the address of
    Kubeflow Pipelines is set (--host, or KF_PIPELINES_ENDPOINT), and deleted with --workflows.
    """
    from platform_sdk.kubeflow.training_job import here
    from platform_sdk.kubeflow.training_job.api import ApiUnavailable
    from platform_sdk.kubeflow.training_job.reaper import reap

    namespace, now = namespace or here.namespace(), time.time()
    lost: list[Workflow] = []
    failure: UserError | None = None
    try:
        reaped = reap(namespace, now, silent_seconds=60 * silent_minutes, dry_run=dry_run)
    except ApiUnavailable as error:
        raise UserError(f"{error}; try again later") from error
    if workflows or host or os.environ.get(HOST):
        try:
            lost = _workflows(namespace, host, now, delete=workflows and not dry_run)
        except UserError as error:
            if workflows:
                failure = error  # raised after the deleted jobs are printed
            else:
                say(f"Workflows without a run are not listed: {error}", err=True)
    if as_json:
        deleted = {"deleted": workflows and not dry_run}
        records = [asdict(orphan) for orphan in reaped] + [
            asdict(workflow) | {"kind": "Workflow"} | deleted for workflow in lost
        ]
        say_json(records)
    else:
        _print(reaped, lost, dry_run=dry_run, workflows=workflows)
        if not reaped and not lost and failure is None:
            say("nothing to delete")
    if failure is not None:
        raise failure


def _print(reaped: list[Orphan], lost: list[Workflow], *, dry_run: bool, workflows: bool) -> None:
    for orphan in reaped:
        verb, minutes = "would delete" if dry_run else "deleted", orphan.silent_seconds / 60
        say(f"{verb} {orphan.kind} {orphan.name} (run {orphan.run}; no heartbeat for {minutes:.0f} min)")
    for workflow in lost:
        verb = "would delete" if dry_run and workflows else "deleted" if workflows else "found"
        age = f"{workflow.age_seconds / 60:.0f} min old"
        say(f"{verb} Workflow {workflow.name} (of {workflow.run_name}, {age}), which has no run")
    if lost and not workflows:
        say("delete them with --workflows")


def _workflows(namespace: str, host: str | None, now: float, *, delete: bool) -> list[Workflow]:
    from platform_sdk.kubeflow.remote.connection import Server
    from platform_sdk.kubeflow.remote.workflows import Workflows

    cluster = Workflows(namespace)
    lost = cluster.orphans(Server(host), now)
    if delete:
        for workflow in lost:
            cluster.delete(workflow)
    return lost
