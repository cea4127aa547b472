"""``hopforge gc``: end jobs on a cluster that no run follows any more."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Annotated

import typer

from platform_sdk.cli.terminal import say
from platform_sdk.config.errors import UserError


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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Delete the unfinished training jobs of runs that are gone: terminated, or killed.

    A launcher writes a heartbeat into its job every minute. Jobs that hopforge did not make are not touched.
    """
    from platform_sdk.kubeflow.training_job import here
    from platform_sdk.kubeflow.training_job.api import ApiUnavailable
    from platform_sdk.kubeflow.training_job.reaper import reap

    try:
        reaped = reap(namespace or here.namespace(), time.time(), silent_seconds=60 * silent_minutes, dry_run=dry_run)
    except ApiUnavailable as error:
        raise UserError(f"{error}; try again later") from error
    if as_json:
        typer.echo(json.dumps([asdict(orphan) for orphan in reaped]))
        return
    for orphan in reaped:
        verb, minutes = "would delete" if dry_run else "deleted", orphan.silent_seconds / 60
        say(f"{verb} {orphan.kind} {orphan.name} (run {orphan.run}; silent for {minutes:.0f} min)")
    if not reaped:
        say("nothing to delete")
