"""``hopforge watch``, ``logs`` and ``cancel`` for runs on a cluster; ``watch`` and ``logs`` also for local runs."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from platform_sdk.cli.output import say_json
from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import Terminal, say
from platform_sdk.config.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.kubeflow.remote.connection import Server
    from platform_sdk.kubeflow.remote.jobs import Jobs
    from platform_sdk.kubeflow.remote.logs import Container
    from platform_sdk.kubeflow.remote.runs import Run
    from platform_sdk.kubeflow.remote.state import RunState

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, its name, or the first 6 or more characters of its id.")
]
HostOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Address of Kubeflow Pipelines (default: KF_PIPELINES_ENDPOINT, else this cluster's)."
    ),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n",
        help="Namespace of the team (multi-user server) or of the server's pods (default: kubeflow).",
    ),
]  # fmt: skip
STATUSES = {"SUCCEEDED": 0, "FAILED": 1, "CANCELED": 3}


def watch(
    run: RunArgument,
    namespace: NamespaceOption = None,
    host: HostOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each change.")] = False,
) -> None:
    """Follow a run until it ends: the state of its steps and jobs, with reasons for waiting or failure.

    Without --host and --namespace, RUN may also be a local run directory, or its name in runs/; it is shown as by
    hopforge run.

    Exit status: 0 succeeded, 1 failed, 3 cancelled. Ctrl-C ends the watching, not the run.

    Steps and jobs are read with KUBECONFIG. If MLFLOW_TRACKING_URI is set, the end of the run is written to MLflow if
    the run's last step could not do so: after a cancel or a retry. Authentication is the same as for hopforge submit.
    """
    if (run_dir := local_run(run, namespace, host)) is not None:
        try:
            _watch_local(run_dir, as_json)
        except KeyboardInterrupt as error:
            say("stopped watching; the run continues", err=True)
            raise typer.Exit(130) from error
    from rich.live import Live

    from platform_sdk.kubeflow.remote.following import follow

    server, found, jobs, unseen = find_remote_run(run, namespace, host)
    if unseen:
        say(f"jobs are not shown, and steps only as Kubeflow Pipelines lists them: {unseen}", err=True)
    console = Terminal(file=sys.stdout, highlight=False)
    try:
        if as_json or not console.is_terminal:
            last = follow(server, found, jobs, _ChangePrinter(as_json))
        else:
            from platform_sdk.cli.run_table import RunTable

            with Live(console=console, refresh_per_second=2) as live:
                last = follow(server, found, jobs, lambda state: live.update(RunTable(state)))
                live.update(RunTable(last, whole=True))  # the table no longer changes, so it may exceed the terminal
    except KeyboardInterrupt as error:
        say(f"stopped watching; the run continues (hopforge cancel {found.run_id} ends it)", err=True)
        raise typer.Exit(130) from error
    if last.state == "FAILED" and not as_json:
        for step in last.steps:
            if step.state == "FAILED":
                reason = f": {step.reason}" if step.reason else ""
                say(f"step {step.name} failed{reason}; see hopforge logs {found.run_id} {step.name}", err=True)
        if last.error:
            say(last.error, err=True)
    _close_tracked(last)
    raise typer.Exit(STATUSES.get(last.state, 1))


def _close_tracked(last: RunState) -> None:
    """Write the end of the run to MLflow if it is missing; an error is only printed."""
    from platform_sdk.kubeflow.remote.tracked import close_tracked_run

    try:
        status = close_tracked_run(last.run_id, last.state)
    except UserError as error:
        _note(str(error))
    else:
        if status is not None:
            _note(f"MLflow: the run is now {status}")


def _watch_local(run_dir: Path, as_json: bool) -> NoReturn:
    """Follow a local run, and exit with the status of its end."""
    from platform_sdk.cli.local_watch import JsonListener, began_at, steps_of, watch_local
    from platform_sdk.cli.progress import Progress, print_outcome
    from platform_sdk.execution.runs import outcome

    if as_json:
        state = watch_local(run_dir, JsonListener())
        say(json.dumps({"run": str(run_dir), "state": state}))
    else:
        ago = max(time.time() - began_at(run_dir), 0.0)
        with Progress(run_dir.name, run_dir, len(steps_of(run_dir)), sys.stdout, ago) as progress:
            state = watch_local(run_dir, progress)
        if state == "FINISHED":
            print_outcome(outcome(run_dir))
        else:
            say(f"the run {'failed' if state == 'FAILED' else 'was stopped'}; see hopforge logs {run_dir}", err=True)
    raise typer.Exit({"FINISHED": 0, "FAILED": 1, "KILLED": 3}[state])


def logs(
    run: RunArgument,
    step: Annotated[
        str | None, typer.Argument(metavar="STEP", help="A step, or a part of one, e.g. train-iteration-03.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Follow the logs until they end; wait for steps that have not started.",
        ),
    ] = False,
    lines: Annotated[int, typer.Option(min=1, help="Maximum number of last lines of each container.")] = 1000,
    namespace: NamespaceOption = None,
    host: HostOption = None,
) -> None:
    """Print the logs of a run's steps, or of one step, and of their jobs, without the lines of Kubeflow and Argo.

    Without --host and --namespace, RUN may also be a local run directory, or its name in runs/. On a cluster, logs are
    read from pods; the logs of deleted pods are lost.

    Authentication is the same as for hopforge submit; pods are read with KUBECONFIG.
    """
    if (run_dir := local_run(run, namespace, host)) is not None:
        from platform_sdk.cli.local_logs import print_logs

        try:
            print_logs(run_dir, step, lines, follow, say)
        except KeyboardInterrupt as error:
            raise typer.Exit(130) from error
        return
    from platform_sdk.config.source import suggestion
    from platform_sdk.kubeflow.remote.logs import containers, read_log
    from platform_sdk.kubeflow.remote.readers import follow_logs

    server, found, jobs, unseen = find_remote_run(run, namespace, host)
    if jobs is None:
        raise UserError(unseen)
    known, notes = containers(jobs, found, step)
    if step is not None and step not in found.step_names and not known:
        raise UserError(f"run {found.name} has no step {step!r}; {suggestion(step, found.step_names)}")
    several: set[Container] = set(known)

    def print_line(container: Container, line: str) -> None:
        several.add(container)
        say(f"{container} | {line}" if step is None or len(several) > 1 else line)

    for note in notes:
        _note(note)
    if not known:
        _explain_silence(server, found, step, follow)
    if follow:
        try:
            follow_logs(server, found, jobs, step, lines, print_line, _note)
        except KeyboardInterrupt as error:
            raise typer.Exit(130) from error
        return
    for container in known:
        written = read_log(jobs, container, lines)
        if written is None:
            _note(f"{container} has not started yet")
        for line in written or ():
            print_line(container, line)


def _explain_silence(server: Server, run: Run, step: str | None, follow: bool) -> None:
    """Print the reason why there are no pods; raise it as an error unless ``follow`` waits for them."""
    from platform_sdk.kubeflow.remote.state import ENDED, look

    state = look(server, run, None)
    states = [status.state for status in state.steps if step in (None, status.name)]
    started = any(status != "PENDING" for status in states)
    subject = f"step {step}" if step else f"run {run.name}"
    if started and (state.ended or (step is not None and ENDED.issuperset(states))):
        raise UserError(
            f"{subject} no longer has pods: they were deleted with their logs after it ended; look for the logs in the "
            "Kubeflow UI",
            code="cluster.no-pods",
        )
    if state.ended:
        raise UserError(f"{subject} never started, and the run has ended: {state.state.lower()}")
    why = f"{subject} has no pods at present" if started else f"{subject} has not started yet"
    if not follow:
        raise UserError(f"{why}; add --follow to wait for it")
    _note(f"{why}; waiting for it")


def _note(text: str) -> None:
    say(text, err=True)


def cancel(
    run: RunArgument,
    namespace: NamespaceOption = None,
    host: HostOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """End a run and delete its jobs. A run that has already ended is not an error.

    If MLFLOW_TRACKING_URI is set, the run becomes KILLED in MLflow, where Kubeflow reports it as failed.

    Authentication is the same as for hopforge submit; jobs are deleted with KUBECONFIG.
    """
    from platform_sdk.kubeflow.remote.following import cancel as cancel_run
    from platform_sdk.kubeflow.remote.state import look

    server, found, jobs, unseen = find_remote_run(run, namespace, host)
    if jobs is None:
        raise UserError(f"{unseen}; without it the run's jobs would not be deleted")
    messages: list[str] = []
    deleted = cancel_run(server, found, jobs, messages.append if as_json else say)
    _close_tracked(look(server, found, None))
    if as_json:
        say_json({"run": found.run_id, "said": messages, "deleted": deleted})
        return
    for name in deleted:
        say(f"deleted {name}")
    if not deleted:
        say("the run has no jobs to delete")


def local_run(run: str, namespace: str | None, host: str | None) -> Path | None:
    """Return the local run directory that ``run`` names; None if there is none, or if an option selects a server."""
    from platform_sdk.tracking.listing import find_local_run

    return find_local_run(run, RUNS) if namespace is None and host is None else None


def find_remote_run(run: str, namespace: str | None, host: str | None) -> tuple[Server, Run, Jobs | None, str]:
    """Return the server, the run and its jobs, or None for the jobs and the reason."""
    from platform_sdk.kubeflow.remote.connection import Server
    from platform_sdk.kubeflow.remote.jobs import Jobs
    from platform_sdk.kubeflow.remote.runs import find_run

    try:
        server = Server(host)
    except UserError as error:
        if namespace is not None or host is not None:
            raise
        if local_run(run, namespace, host) is not None:
            raise UserError(f"{run}: a run on this machine; stop it with Ctrl-C where it runs") from error
        if os.path.exists(run):
            raise UserError(f"{run}: not a run directory (it contains no recipe.json)", code="run.not-a-run") from error
        raise UserError(f"{run}: no run directory and no run in {RUNS}, and {error}") from error
    found = find_run(server, run, namespace)
    try:
        return server, found, Jobs(found.namespace), ""
    except UserError as error:
        return server, found, None, str(error)


class _ChangePrinter:
    """Callback that prints a line for each change."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._last: RunState | None = None

    def __call__(self, state: RunState) -> None:
        from platform_sdk.kubeflow.remote.state import changes

        for change in changes(self._last, state):
            say(json.dumps(change) if self._as_json else _line(change))
        self._last = state


def _line(change: dict[str, str]) -> str:
    reason = change.get("reason") or change.get("error") or ""
    what = (
        f"  job {change['job']}" if "job" in change else f"step {change['step']}" if "step" in change
        else f"run {change['name']}" if "run" in change else change["unseen"]
    )  # fmt: skip
    state = f": {change['state'].lower()}" if "state" in change else ""
    return f"{change['time']} {what}{state}" + (f" ({reason})" if reason else "")
