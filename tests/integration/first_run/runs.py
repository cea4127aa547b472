"""Checks of pipeline runs: upload, submit, watch, logs, a failed and retried run, a cancelled one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.integration.first_run.checks import Check, Skipped, Unmet
from tests.integration.first_run.commands import POD_SELECTORS, Cluster, Watched, is_running_job, parsed, pod_names

RESUMING_LOOKS, LOOK_SECONDS = 12, 10.0


@dataclass
class PipelineRun:
    """A submitted run and what was seen of it."""

    run_id: str
    name: str
    watched: Watched | None = None


class RunChecks:
    """Checks that share the runs they submit: one undisturbed, one that fails and is retried, one that is cancelled.

    Args:
        retry: Requests the retry of a run by its id, as the button of the UI does.
    """

    def __init__(
        self, cluster: Cluster, retry: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._cluster, self._retry, self._sleep = cluster, retry, sleep
        self._pipeline = Path(cluster.recipe).parent.name
        self._runs: dict[str, PipelineRun] = {}

    def checks(self) -> list[Check]:
        """The checks in their order."""
        return [
            Check("upload", "a version for each recipe", self.upload),
            Check("upload again", "all versions exist", self.upload_again),
            Check("submit", "a run", lambda: self.submit("first")),
            Check("watch", "SUCCEEDED, with jobs", self.watch),
            Check("logs", "lines of steps", self.logs),
            Check("submit with other values", "another run", lambda: self.submit("second", "seed=1")),
            Check("a step's pod deleted", "FAILED", self.fail),
            Check("retry, and a job's pod deleted", "SUCCEEDED", self.retry),
            Check("jobs of two runs", "none in common", self.own_jobs),
            Check("submit, to be cancelled", "another run", lambda: self.submit("third", "seed=2")),
            Check("cancel", "its jobs are deleted", self.cancel),
            Check("watch the cancelled run", "CANCELED or FAILED", self.watch_cancelled),
            Check("cancel again", "no job is left", self.cancel_again),
        ]

    def upload(self) -> str:
        versions = parsed(self._cluster.run_hopforge(self._cluster.upload(self._pipeline), minutes=20))
        if not versions:
            raise Unmet(f"no version of {self._pipeline}")
        new = sum(bool(one["new"]) for one in versions)
        return f"{new} uploaded, {len(versions) - new} existing: {', '.join(one['version'] for one in versions)}"

    def upload_again(self) -> str:
        versions = parsed(self._cluster.run_hopforge(self._cluster.upload(self._pipeline), minutes=20))
        if new := [one["version"] for one in versions if one["new"]]:
            raise Unmet(f"uploaded again: {', '.join(new)}")
        return f"{len(versions)} existing"

    def submit(self, key: str, *overrides: str) -> str:
        made = parsed(self._cluster.run_hopforge(self._cluster.submit(*overrides)))
        if made["run_id"] in {run.run_id for run in self._runs.values()}:
            raise Unmet(f"the run {made['run_id']} again")
        self._runs[key] = PipelineRun(made["run_id"], made["run"])
        return f"{made['run']} ({made['run_id']})"

    def watch(self) -> str:
        run = self._run("first")
        run.watched = self._cluster.watch_run(run.run_id)
        return _success(run.watched)

    def logs(self) -> str:
        lines = self._cluster.run_hopforge(self._cluster.logs(self._run("first").run_id)).splitlines()
        if not lines:
            raise Unmet("no line")
        return f"{len(lines)} lines, the last one: {lines[-1]}"

    def fail(self) -> str:
        run = self._run("second")
        started = self._cluster.watch_run(run.run_id, is_running_job)
        if started.status is not None:
            raise Unmet(f"{started.state} before a job ran: {started.reason() or started.errors.strip()}")
        step = started.records[-1]["step"]
        pod = self._delete_pod(f"pipeline/runid={run.run_id},hopforge.dev/task={step}")
        run.watched = self._cluster.watch_run(run.run_id)
        if run.watched.state != "FAILED":
            raise Unmet(f"{run.watched.state} although {pod} was deleted")
        return f"FAILED: {run.watched.reason() or 'no reason given'}"

    def retry(self) -> str:
        run = self._run("second")
        if run.watched is None or run.watched.state != "FAILED":
            raise Skipped("the run has not failed, so it cannot be retried")
        self._retry(run.run_id)
        self._await_running(run.run_id)
        resumed = self._cluster.watch_run(run.run_id, is_running_job)
        if resumed.status is not None:
            raise Unmet(f"{resumed.state} before a job ran again: {resumed.reason() or resumed.errors.strip()}")
        pod = self._delete_pod(*(f"{label}={resumed.records[-1]['job']}" for label in POD_SELECTORS))
        last = self._cluster.watch_run(run.run_id)
        run.watched = Watched([*run.watched.records, *resumed.records, *last.records], last.status, last.errors)
        return f"{_success(run.watched)}; deleted {pod}"

    def own_jobs(self) -> str:
        first, second = (self._run(key).watched for key in ("first", "second"))
        if first is None or second is None:
            raise Skipped("the two runs were not watched")
        if not first.jobs or not second.jobs:
            raise Unmet(f"{len(first.jobs)} and {len(second.jobs)} jobs seen")
        if common := set(first.jobs) & set(second.jobs):
            raise Unmet(f"in common: {', '.join(sorted(common))}")
        return f"{len(first.jobs)} and {len(second.jobs)} jobs, none in common"

    def cancel(self) -> str:
        run = self._run("third")
        started = self._cluster.watch_run(run.run_id, is_running_job)
        if started.status is not None:
            raise Unmet(f"{started.state} before a job ran: {started.reason() or started.errors.strip()}")
        job = started.records[-1]["job"]
        deleted = parsed(self._cluster.run_hopforge(self._cluster.cancel(run.run_id)))["deleted"]
        if not any(name.endswith(job) for name in deleted):
            raise Unmet(f"{job} is not among the deleted jobs: {', '.join(deleted) or 'none'}")
        return f"deleted {', '.join(deleted)}"

    def watch_cancelled(self) -> str:
        watched = self._cluster.watch_run(self._run("third").run_id)
        if watched.state not in ("CANCELED", "FAILED"):
            raise Unmet(watched.state)
        return f"{watched.state}, status {watched.status}"

    def cancel_again(self) -> str:
        deleted = parsed(self._cluster.run_hopforge(self._cluster.cancel(self._run("third").run_id)))["deleted"]
        if deleted:
            raise Unmet(f"deleted {', '.join(deleted)}")
        return "no job"

    def cancel_unfinished(self) -> None:
        """Cancel the runs that have not been seen to end."""
        for run in self._runs.values():
            if run.watched is None or run.watched.status is None:
                try:
                    self._cluster.run_hopforge(self._cluster.cancel(run.run_id))
                except Unmet as error:
                    print(f"run {run.name} was not cancelled: {error}")

    def _await_running(self, run_id: str) -> None:
        """Wait until a retried run is running: at first the server may still list it as failed."""
        for _ in range(RESUMING_LOOKS):
            watched = self._cluster.watch_run(run_id, lambda record: "run" in record and record["state"] == "RUNNING")
            if watched.state != "FAILED":
                return
            self._sleep(LOOK_SECONDS)
        raise Unmet(f"still FAILED {RESUMING_LOOKS * LOOK_SECONDS:.0f} s after the retry")

    def _run(self, key: str) -> PipelineRun:
        if key not in self._runs:
            raise Skipped(f"the {key} run was not submitted")
        return self._runs[key]

    def _delete_pod(self, *selectors: str) -> str:
        for selector in selectors:
            for name in pod_names(self._cluster.run_kubectl(self._cluster.pods(selector))):
                self._cluster.run_kubectl(self._cluster.delete_pod(name))
                return name
        raise Unmet(f"no running pod with {' or '.join(selectors)}")


def _success(watched: Watched) -> str:
    if watched.state != "SUCCEEDED":
        raise Unmet(f"{watched.state}: {watched.reason() or watched.errors.strip() or 'no reason'}")
    if not watched.jobs:
        raise Unmet("SUCCEEDED, but no job was seen")
    return f"SUCCEEDED, {len(set(watched.steps('SUCCEEDED')))} steps, {len(watched.jobs)} jobs"
