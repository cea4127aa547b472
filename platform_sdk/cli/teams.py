"""``hopforge teams``: manifests of teams that share a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.application import Application
from platform_sdk.cli.output import say, say_json
from platform_sdk.tracking.findings import UNCHECKED

if TYPE_CHECKING:
    from platform_sdk.teams.status import Status
    from platform_sdk.teams.usage import Usage

MARKS = {"met": "✓", "unmet": "✗", "unseen": "?"}
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The teams file, as manifests/teams.yaml.")]

teams = Application(no_args_is_help=True, help="Teams that share a cluster's GPUs.")


@teams.command()
def render(
    file: FileArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the manifests.")],
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="Delete the folder of a team that the file no longer names.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what changed as JSON.")] = False,
) -> None:
    """Write the manifests of all teams, for `kubectl apply -k`, Argo CD or Flux.

    The folder is self-contained. A team that the file no longer names keeps its manifests until --remove names it.
    The commands of hopforge teams never change a cluster.
    """
    from platform_sdk.teams.folder import render_into

    done = render_into(file, output, remove or ())
    for warning in done.warnings:
        say(f"warning: {warning}", err=True)
    for name, storage in done.kept.items():
        say(
            f"team {name} is not in {file} and stays in {output} as it was. Its removal would delete the namespace "
            f"{name} with its workspace of {storage}, all runs and models in it, and its queue: "
            f"hopforge teams render {file} -o {output} --remove {name}",
            err=True,
        )
    for name in done.removed:
        say(
            f"team {name} is no longer in {output}. In the cluster it stays until you delete it, with all its runs: "
            f"kubectl delete profile {name}; kubectl delete clusterqueue.kueue.x-k8s.io {name}; with Kubeflow Trainer "
            f"also kubectl delete clustertrainingruntime --ignore-not-found hopforge-{name} hopforge-{name}-online",
            err=True,
        )
    if as_json:
        say_json(done)
        return
    count = len(done.written)
    changed = f"{count} {'file' if count == 1 else 'files'} written, {len(done.deleted)} deleted"
    names = ", ".join(done.teams)
    say(f"teams in {output}: {names} ({changed}); apply them as {output}/README.md describes")


@teams.command("check")
def check_(
    file: FileArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print the requirements as JSON.")] = False,
) -> None:
    """Check that the cluster in KUBECONFIG meets the teams' requirements: one line each, with the remedy.

    ✓ met, ✗ not met, ? not checked because your account may not read it or the cluster's answer is an error. Nothing is
    changed, and no value of a Secret is read. The exit status is 0 if all requirements are met, 1 if one is not met, 3
    if one could not be checked, and 2 if the cluster cannot be reached.
    """
    from platform_sdk.teams.check import check_cluster
    from platform_sdk.teams.cluster import Cluster
    from platform_sdk.teams.folder import read_teams

    found = check_cluster(read_teams(file), Cluster.here())
    if as_json:
        say_json([requirement.model_dump() for requirement in found])
    else:
        for requirement in found:
            what = f": {requirement.found}" if requirement.found else ""
            say(f"{MARKS[requirement.state]} {requirement.name}{what}")
            if requirement.remedy:
                say(f"    {requirement.remedy}")
    states = {requirement.state for requirement in found}
    raise typer.Exit(1 if "unmet" in states else UNCHECKED if "unseen" in states else 0)


@teams.command()
def status(
    file: FileArgument,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Add the GPU-hours of runs started in the last 12h, 7d or 2w, from MLflow."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the totals as JSON.")] = False,
) -> None:
    """Print each team's GPUs (nominal, used, borrowed) and pending jobs, from Kueue's queues in KUBECONFIG.

    With --since, also print the GPU-hours in the teams' workspaces of the MLflow server in MLFLOW_TRACKING_URI. If
    something could not be read, the totals lack it and the exit status is 3.
    """
    from platform_sdk.teams.cluster import Cluster
    from platform_sdk.teams.folder import read_teams
    from platform_sdk.teams.status import read_status
    from platform_sdk.teams.usage import duration, read_usage

    spec = read_teams(file)
    back = None if since is None else duration(since)
    usage = None if back is None else read_usage(spec, back)
    found = read_status(spec, Cluster.here())
    if as_json:
        hours = {} if usage is None else {"gpu_hours": usage.model_dump(mode="json")}
        say_json(found.model_dump(mode="json") | hours)
    else:
        _print_status(found)
        if usage is not None:
            _print_usage(usage)
    unseen = (*found.unseen, *(usage.unseen if usage else ()))
    for note in unseen:
        say(f"not seen: {note}", err=True)
    if unseen:
        raise typer.Exit(UNCHECKED)


def _print_status(found: Status) -> None:
    from datetime import UTC, datetime

    from rich.markup import escape
    from rich.table import Table

    from platform_sdk.cli.terminal import Terminal

    console = Terminal(highlight=False)
    now = datetime.now(UTC)
    for pool in found.pools:
        console.print(
            f"[bold]{escape(pool.pool)}[/bold]: {pool.used} of {pool.count} {escape(pool.resource)} in use, "
            f"{pool.borrowed} of them borrowed"
        )
        table = Table(box=None, header_style="bold", pad_edge=False)
        for title in ("team", "nominal", "used", "borrowed", "lent", "idle", "pending", "oldest"):
            table.add_column(title, justify="left" if title == "team" else "right")
        for team in (one for one in found.teams if one.pool == pool.pool):
            waits = "" if team.oldest is None else f"{int((now - team.oldest).total_seconds() // 60)} min"
            least, most = team.lent
            lent = str(most) if least == most else f"{least}-{most}"
            counts = (team.nominal, team.used, team.borrowed, lent, team.idle, team.pending)
            table.add_row(escape(team.team), *map(str, counts), waits)
        console.print(table)


def _print_usage(usage: Usage) -> None:
    from rich.markup import escape
    from rich.table import Table

    from platform_sdk.cli.terminal import Terminal

    console = Terminal(highlight=False)
    console.print(f"[bold]runs started since {usage.since.isoformat(timespec='minutes')}[/bold]")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("team", "runs", "unfinished", "GPU-hours"):
        table.add_column(title, justify="left" if title == "team" else "right")
    for team in usage.teams:
        table.add_row(escape(team.team), str(team.runs), str(team.unfinished), f"{team.gpu_hours:.2f}")
    console.print(table)
