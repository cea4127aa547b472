"""``hopforge gc``: delete jobs on a cluster that no run follows any more, and Workflows without a run."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.follow import HostOption
from platform_sdk.cli.terminal import say
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.access import HOST

if TYPE_CHECKING:
    from platform_sdk.kubeflow.remote.workflows import Workflow


def gc(
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Namespace of the jobs (default: that of this pod).")
    ] = None,
    silent_minutes: Annotated[
        float,
        typer.Option(
            min=2,
            help="Minutes without a launcher's heartbeat; a launcher waits 30 for the API.",
        ),
    ] = 45,
    workflows: Annotated[
        bool,
        typer.Option("--workflows", help="Also delete hopforge's Workflows that Kubeflow Pipelines has no run for."),
    ] = False,
    host: HostOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Delete the unfinished training jobs of runs that are gone: terminated, or killed.

    A launcher writes a heartbeat into its job every minute. Jobs that hopforge did not make are not touched.

    A request to create a run that fails may leave a Workflow that runs without a run. Such Workflows are listed if the
    address of Kubeflow Pipelines is given (--host, or KF_PIPELINES_ENDPOINT), and deleted with --workflows.
    """
    from platform_sdk.kubeflow.training_job import here
    from platform_sdk.kubeflow.training_job.api import ApiUnavailable
    from platform_sdk.kubeflow.training_job.reaper import reap

    place, now = namespace or here.namespace(), time.time()
    lost: list[Workflow] = []
    try:
        reaped = reap(place, now, silent_seconds=60 * silent_minutes, dry_run=dry_run)
    except ApiUnavailable as error:
        raise UserError(f"{error}; try again later") from error
    if workflows or host or os.environ.get(HOST):
        try:
            lost = _workflows(place, host, now, delete=workflows and not dry_run)
        except UserError as error:
            if workflows:
                raise
            say(f"Workflows without a run are not listed: {error}", err=True)
    if as_json:
        deleted = {"deleted": workflows and not dry_run}
        records = [asdict(orphan) for orphan in reaped] + [asdict(one) | {"kind": "Workflow"} | deleted for one in lost]
        typer.echo(json.dumps(records))
        return
    for orphan in reaped:
        verb, minutes = "would delete" if dry_run else "deleted", orphan.silent_seconds / 60
        say(f"{verb} {orphan.kind} {orphan.name} (run {orphan.run}; silent for {minutes:.0f} min)")
    for one in lost:
        verb = "would delete" if dry_run and workflows else "deleted" if workflows else "found"
        say(f"{verb} Workflow {one.name} (of {one.run_name}, {one.age_seconds / 60:.0f} min old), which has no run")
    if lost and not workflows:
        say("delete them with --workflows")
    if not reaped and not lost:
        say("nothing to delete")


def _workflows(namespace: str, host: str | None, now: float, *, delete: bool) -> list[Workflow]:
    from platform_sdk.kubeflow.remote.connection import Server
    from platform_sdk.kubeflow.remote.workflows import Workflows

    cluster = Workflows(namespace)
    lost = cluster.orphans(Server(host), now)
    if delete:
        for workflow in lost:
            cluster.delete(workflow)
    return lost
