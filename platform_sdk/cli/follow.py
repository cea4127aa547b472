"""``hopforge watch``, ``logs`` and ``cancel``: a run on a cluster."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.remote import HostOption, NamespaceOption
from platform_sdk.config.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from platform_sdk.kubeflow.remote.connection import Server
    from platform_sdk.kubeflow.remote.following import Container
    from platform_sdk.kubeflow.remote.runs import Jobs, Run, RunState

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or its name.")]
STATUSES = {"SUCCEEDED": 0, "FAILED": 1, "CANCELED": 3}


def register(app: typer.Typer) -> None:
    """Attach the commands."""
    app.command("watch")(watch)
    app.command("logs")(logs)
    app.command("cancel")(cancel)


def watch(
    run: RunArgument,
    namespace: NamespaceOption = None,
    host: HostOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each change.")] = False,
) -> None:
    """Follow a run to its end: the state of its steps, and of their jobs with the reason why they wait.

    The exit status says how it ended: 0 succeeded, 1 failed, 3 cancelled. Ctrl-C ends the watching, not the run.
    """
    from rich.console import Console
    from rich.live import Live

    from platform_sdk.kubeflow.remote.following import follow

    server, found, jobs, unseen = _find(run, namespace, host)
    if unseen:
        typer.echo(f"jobs are not shown: {unseen}", err=True)
    console = Console(file=sys.stdout, highlight=False)
    try:
        if as_json or not console.is_terminal:
            last = follow(server, found, jobs, _Teller(as_json))
        else:
            with Live(console=console, refresh_per_second=2) as live:
                last = follow(server, found, jobs, lambda state: live.update(_table(state)))
    except KeyboardInterrupt as error:
        typer.echo(f"no longer watched; the run goes on (hopforge cancel {found.run_id} ends it)", err=True)
        raise typer.Exit(130) from error
    if last.state == "FAILED" and not as_json:
        for step in last.steps:
            if step.state == "FAILED":
                typer.echo(f"step {step.name} failed; see hopforge logs {found.run_id} {step.name}", err=True)
        if last.error:
            typer.echo(last.error, err=True)
    raise typer.Exit(STATUSES.get(last.state, 1))


def logs(
    run: RunArgument,
    step: Annotated[str | None, typer.Argument(metavar="[STEP]", help="One step, as train-01; else all.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is still to come.")] = False,
    lines: Annotated[int, typer.Option(min=1, help="How many of the last lines of every container.")] = 1000,
    namespace: NamespaceOption = None,
    host: HostOption = None,
) -> None:
    """Print what a run's steps, or one of them, and their jobs say.

    Pods that Kubeflow or Kubernetes has deleted say nothing any more.
    """
    from platform_sdk.config.source import suggestion
    from platform_sdk.kubeflow.remote.following import containers, read_log
    from platform_sdk.kubeflow.remote.runs import look

    server, found, jobs, unseen = _find(run, namespace, host)
    if jobs is None:
        raise UserError(unseen)
    known = list(containers(jobs, found, step))
    if step is not None and step not in found.steps and not known:
        raise UserError(f"run {found.name} has no step {step!r}; {suggestion(step, found.steps)}")
    if not known:
        states = {one.name: one.state for one in look(server, found, None).steps}
        begun = states.get(step, "") != "PENDING" if step else any(state != "PENDING" for state in states.values())
        whose = f"step {step}" if step else f"run {found.name}"
        raise UserError(
            f"{whose} has no pods any more: they were deleted after it ended, and their logs with them; the Kubeflow "
            "UI may have kept them" if begun else f"{whose} has not started yet"
        )  # fmt: skip

    def say(container: Container) -> None:
        assert jobs is not None
        head = f"[{container.step} {container.pod} {container.name}] " if len(known) > 1 or step is None else ""
        for line in read_log(jobs, container, lines, follow=follow):
            typer.echo(f"{head}{line}")

    if not follow:
        for container in known:
            say(container)
        return
    try:
        _follow_all(server, found, jobs, step, say)
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error


def cancel(
    run: RunArgument,
    namespace: NamespaceOption = None,
    host: HostOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """End a run and delete its jobs. What has ended already is no error."""
    from platform_sdk.kubeflow.remote.following import cancel as end

    server, found, jobs, unseen = _find(run, namespace, host)
    if jobs is None:
        raise UserError(f"{unseen}; without it the run's jobs would stay behind")
    told: list[str] = []
    deleted = end(server, found, jobs, told.append if as_json else typer.echo)
    if as_json:
        typer.echo(json.dumps({"run": found.run_id, "said": told, "deleted": deleted}))
        return
    for name in deleted:
        typer.echo(f"deleted {name}")
    if not deleted:
        typer.echo("it has no jobs to delete")


def _find(run: str, namespace: str | None, host: str | None) -> tuple[Server, Run, Jobs | None, str]:
    """The server, the run, and its jobs; or why they cannot be seen."""
    from platform_sdk.kubeflow.remote.connection import Server
    from platform_sdk.kubeflow.remote.runs import Jobs, find_run

    server = Server(host)
    found = find_run(server, run, namespace)
    try:
        return server, found, Jobs(found.namespace), ""
    except UserError as error:
        return server, found, None, str(error)


def _follow_all(server: Server, run: Run, jobs: Jobs, step: str | None, say: Callable[[Container], None]) -> None:
    """Follow the containers there are and those that come, each in a thread, until the run has ended."""
    from platform_sdk.kubeflow.remote.following import LOOK_SECONDS, containers
    from platform_sdk.kubeflow.remote.runs import look

    threads: dict[Container, threading.Thread] = {}
    while True:
        ended = look(server, run, None).ended
        for container in containers(jobs, run, step):
            if container not in threads:
                threads[container] = threading.Thread(target=say, args=(container,), daemon=True)
                threads[container].start()
        if ended:
            break
        time.sleep(LOOK_SECONDS)
    for thread in threads.values():
        thread.join()


class _Teller:
    """Prints a line for each change."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._last: RunState | None = None

    def __call__(self, state: RunState) -> None:
        from platform_sdk.kubeflow.remote.runs import changes

        for change in changes(self._last, state):
            typer.echo(json.dumps(change) if self._as_json else _line(change))
        self._last = state


def _line(change: dict[str, str]) -> str:
    reason = change.get("reason") or change.get("error") or ""
    what = (
        f"  job {change['job']}" if "job" in change else f"step {change['step']}" if "step" in change
        else f"run {change['name']}" if "run" in change else change["unseen"]
    )  # fmt: skip
    state = f": {change['state'].lower()}" if "state" in change else ""
    return f"{change['time']} {what}{state}" + (f" ({reason})" if reason else "")


MARKS = {"SUCCEEDED": "[green]✓[/green]", "FAILED": "[red]✗[/red]", "RUNNING": "[cyan]▸[/cyan]"}


def _table(state: RunState) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, title=f"{escape(state.name)}: {state.state.lower()}",
                  title_justify="left", caption=escape(state.unseen) or None)  # fmt: skip
    for title in ("", "step", "state", ""):
        table.add_column(title)
    jobs = list(state.jobs)
    for step in state.steps:
        took = "" if step.seconds is None else f"{step.seconds:.0f} s"
        table.add_row(MARKS.get(step.state, " "), step.name, step.state.lower(), took)
        for job in [one for one in jobs if one.step == step.name]:
            table.add_row("", f"  {job.kind}", job.state, escape(job.reason))
    for job in [one for one in jobs if one.step not in {step.name for step in state.steps}]:
        table.add_row("", f"{job.kind} {job.name}", job.state, escape(job.reason))
    return table
