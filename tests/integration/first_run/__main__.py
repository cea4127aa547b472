"""The first run of docs/cluster.md and what follows it, on a real cluster: ``make test-cluster HOST=URL``.

Every check runs, whatever becomes of the others; a table shows what was expected and what was seen. The exit status is
1 if a check failed, 0 otherwise. What cannot run is skipped with a reason. The checks of single jobs, which are short,
come first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.errors import UserError
from tests.integration.first_run.checks import Check, Outcome, Skipped, Unmet, run_checks, table
from tests.integration.first_run.commands import Cluster
from tests.integration.first_run.jobs import JobChecks, Launcher, real_launcher
from tests.integration.first_run.runs import RunChecks


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks on the cluster of KUBECONFIG, print the table, and return the exit status."""
    options = _parser().parse_args(arguments)
    cluster = Cluster(
        host=options.host, namespace=options.namespace or None, queue=options.queue or None, recipe=options.recipe,
        file=Path(options.cluster), run_minutes=options.minutes,
    )  # fmt: skip
    return run(cluster, lambda run_id: retry_run(cluster.host, run_id), real_launcher)


def run(cluster: Cluster, retry: Callable[[str], None], launcher: Callable[[], Launcher]) -> int:
    """Run all checks with these means, print the table, and return the exit status."""
    runs = RunChecks(cluster, retry)
    checks = _skipped(_job_checks(cluster, launcher), obstacle(cluster, pipelines=False))
    checks += _skipped(runs.checks(), obstacle(cluster, pipelines=True))
    try:
        outcomes = run_checks(checks, _report)
    finally:
        runs.cancel_unfinished()
    print(f"\n{table(outcomes)}")
    return int(any(outcome.ok is False for outcome in outcomes))


def obstacle(cluster: Cluster, pipelines: bool) -> str:
    """Return why no check can run: of pipeline runs, or of jobs; empty if there is no obstacle."""
    if shutil.which(cluster.kubectl[0]) is None:
        return "kubectl is not installed"
    if not cluster.file.is_file():
        return f"{cluster.file}: no such file; docs/cluster.md describes it (CLUSTER=FILE)"
    if pipelines and not cluster.host:
        return "no address of Kubeflow Pipelines is given (HOST=URL)"
    try:
        cluster.run_kubectl(["get", "--raw", "/readyz", "--request-timeout=20s"])
    except Unmet as error:
        return f"no cluster is reached with KUBECONFIG: {error}"
    return ""


def retry_run(host: str, run_id: str) -> None:
    """Request the retry of a run, as the button of the UI does."""
    from platform_sdk.kubeflow.remote.connection import Server

    server = Server(host)
    server.ask(server.api.runs.run_service_retry_run, run_id)


def _job_checks(cluster: Cluster, launcher: Callable[[], Launcher]) -> list[Check]:
    """The checks of jobs; without a readable cluster file none can run."""
    spec = read_as(ClusterSpec, cluster.file if cluster.file.is_file() else Path("pipelines/cluster.yaml"))
    return JobChecks(cluster, spec, launcher).checks()


def _skipped(checks: list[Check], reason: str) -> list[Check]:
    """The same checks if there is no reason to skip them, else checks that are skipped."""

    def skip() -> str:
        raise Skipped(reason)

    return [replace(check, act=skip) for check in checks] if reason else checks


def _report(outcome: Outcome) -> None:
    name, expected, seen, seconds, verdict = outcome.cells
    print(
        f"{verdict:7} {name} ({seconds} s): {seen}" + (f"; expected: {expected}" if outcome.ok is False else ""),
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make test-cluster", description=__doc__)
    environment = os.environ.get
    parser.add_argument(
        "--host", default=environment("KF_PIPELINES_ENDPOINT", ""), help="address of Kubeflow Pipelines"
    )
    parser.add_argument("--namespace", default="", help="the team's namespace; none for a Pipelines of a single user")
    parser.add_argument("--queue", default="", help="a LocalQueue for the checks of queued jobs")
    parser.add_argument("--recipe", default=Cluster.recipe, help="the recipe of the runs")
    parser.add_argument("--cluster", default=str(Cluster.file), help="the file that describes the cluster")
    parser.add_argument("--minutes", type=float, default=Cluster.run_minutes, help="the limit of one run")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(str(error))
