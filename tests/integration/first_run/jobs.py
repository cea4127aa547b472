"""Checks of single jobs: each kind with and without a queue, a deleted pod, too little memory, and ``hopforge gc``.

The launcher runs in this process, as it would in a step's pod; each job is one small shell script.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from platform_sdk.config.cluster import ClusterSpec, JobSpec, Resources
from platform_sdk.kubeflow.training_job.description import Description
from tests.integration.first_run.checks import Check, Skipped, Unmet
from tests.integration.first_run.commands import POD_SELECTORS, Cluster, parsed, pod_names

MINUTES = 10.0  # for a job of less than a minute, with its image's pull
SILENT_SECONDS = 130.0  # above the two minutes after which gc takes a job for abandoned
LITTLE_MEMORY = "128Mi"
GROUPS = {"pytorchjob": "kubeflow.org", "trainjob": "trainer.kubeflow.org"}
PLURALS = {"pytorchjob": "pytorchjobs", "trainjob": "trainjobs"}
SHORT = "echo begun; sleep 5; echo done"
ENDS_ON_SIGTERM = "trap 'exit 143' TERM; sleep 45 & wait $!"
TOO_MUCH_MEMORY = 'exec python -c "x = [bytes([1]) * 2**20 for _ in range(4096)]"'


@dataclass(frozen=True)
class ShellJob(Description):
    """A job that runs a shell script instead of a module."""

    script: str = ""

    @property
    def command(self) -> list[str]:
        return ["sh", "-c", self.script]


class LauncherGone(BaseException):
    """Ends the launcher as a kill would: it deletes nothing and writes no more heartbeats."""


@dataclass(frozen=True)
class Launcher:
    """The launcher of steps; ``delete`` deletes a job, which may be gone."""

    run: Callable[[Description, Callable[[str], None]], None]
    delete: Callable[[Description], None]


def real_launcher() -> Launcher:
    """The product's launcher, with KUBECONFIG."""
    from platform_sdk.kubeflow.training_job.api import connect
    from platform_sdk.kubeflow.training_job.backend import api_for
    from platform_sdk.kubeflow.training_job.launcher import run_job

    connection = connect()
    return Launcher(
        run=lambda job, tell: run_job(job, api_for(job, connection), tell),
        delete=lambda job: api_for(job, connection).delete(job.name),
    )


@dataclass
class _Attempt:
    """A launcher in a thread of its own: its lines so far, and how it ended."""

    lines: list[str] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def states(self) -> str:
        """The states that the launcher reported, without what it repeats."""
        states = [line.partition(": ")[2].partition(" (")[0] for line in self.lines]
        return " → ".join(state for state, last in zip(states, ["", *states], strict=False) if state != last)


class JobChecks:
    """Checks of jobs; each job is deleted at the end of its check."""

    def __init__(
        self, cluster: Cluster, spec: ClusterSpec, launcher: Callable[[], Launcher],
        sleep: Callable[[float], None] = time.sleep, minutes: float = MINUTES,
    ) -> None:  # fmt: skip
        self._cluster, self._spec, self._sleep, self._minutes = cluster, spec, sleep, minutes
        self._launcher = launcher
        self._run = f"hopforge-check-{uuid.uuid4().hex[:8]}"

    def checks(self) -> list[Check]:
        """The checks in their order."""
        return [
            Check("PyTorchJob", "Succeeded", lambda: self.short("pytorchjob", queued=False)),
            Check("PyTorchJob in a queue", "admitted, Succeeded", lambda: self.short("pytorchjob", queued=True)),
            Check("TrainJob", "Succeeded", lambda: self.short("trainjob", queued=False)),
            Check("TrainJob in a queue", "admitted, Succeeded", lambda: self.short("trainjob", queued=True)),
            Check("PyTorchJob, pod deleted", "restarted, Succeeded", lambda: self.deleted_pod("pytorchjob")),
            Check("TrainJob, pod deleted", "restarted, Succeeded", lambda: self.deleted_pod("trainjob")),
            Check("PyTorchJob out of memory", "fails, out of memory", lambda: self.out_of_memory("pytorchjob")),
            Check("TrainJob out of memory", "fails, out of memory", lambda: self.out_of_memory("trainjob")),
            Check("gc", "a job without a launcher is deleted", self.gc),
        ]

    def short(self, backend: str, queued: bool) -> str:
        name = f"{backend}{'-queued' if queued else ''}"
        return self._success(self._job(name, SHORT, backend, queue=self._queue() if queued else None))

    def deleted_pod(self, backend: str) -> str:
        job, deleted = self._job(f"{backend}-deleted", ENDS_ON_SIGTERM, backend), list[str]()

        def delete_first_pod(line: str) -> None:
            if ": Running" in line and not deleted:
                deleted.append(self._delete_pod(job.name))

        seen = self._success(job, delete_first_pod)
        if not deleted:
            raise Unmet(f"no pod was seen running: {seen}")
        return f"{seen}; deleted {deleted[0]}"

    def out_of_memory(self, backend: str) -> str:
        job = self._job(f"{backend}-memory", TOO_MUCH_MEMORY, backend, memory=LITTLE_MEMORY)
        attempt = self._attempt(job)
        if attempt.error is None:
            raise Unmet(f"no failure: {attempt.states}")
        text = str(attempt.error)
        if "out of memory" not in text.lower():
            raise Unmet(f"the failure does not name the memory: {text}")
        return text.splitlines()[0]

    def gc(self) -> str:
        job = self._job("abandoned", "sleep 600", self._served_backend())

        def die(line: str) -> None:
            raise LauncherGone

        try:
            attempt = self._follow(job, die)
            if not isinstance(attempt.error, LauncherGone):
                raise Unmet(f"the job was not created: {attempt.error or attempt.states}")
            self._sleep(SILENT_SECONDS)
            silent = {one["name"] for one in self._silent_jobs()}
            if job.name not in silent:
                raise Unmet(f"{job.name} is not among the silent jobs: {', '.join(sorted(silent)) or 'none'}")
            if others := sorted(silent - {job.name}):
                raise Skipped(f"{job.name} is found; not deleted, because {', '.join(others)} would be deleted too")
            deleted = {one["name"] for one in parsed(self._cluster.run_hopforge(self._cluster.gc()))}
            if job.name not in deleted:
                raise Unmet(f"deleted: {', '.join(sorted(deleted)) or 'none'}")
            return f"deleted {job.name}"
        finally:
            self._launcher().delete(job)

    def _silent_jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = parsed(self._cluster.run_hopforge(self._cluster.gc("--dry-run")))
        return [one for one in found if one.get("kind") != "Workflow"]  # not deleted without --workflows

    def _queue(self) -> str:
        if self._cluster.queue is None:
            raise Skipped("no queue is given (QUEUE=NAME)")
        if not self._cluster.run_kubectl(self._cluster.resources("kueue.x-k8s.io")).strip():
            raise Skipped("the cluster has no Kueue")
        return self._cluster.queue

    def _served_backend(self) -> str:
        for backend in GROUPS:
            if self._serves(backend):
                return backend
        raise Skipped("the cluster serves neither PyTorchJobs nor TrainJobs")

    def _serves(self, backend: str) -> bool:
        listed = self._cluster.run_kubectl(self._cluster.resources(GROUPS[backend])).split()
        return f"{PLURALS[backend]}.{GROUPS[backend]}" in listed

    def _job(
        self, step: str, script: str, backend: str, queue: str | None = None, memory: str = "256Mi"
    ) -> ShellJob:  # fmt: skip
        if not self._serves(backend):
            raise Skipped(f"the cluster serves no {PLURALS[backend]}.{GROUPS[backend]}")
        resources = Resources(cpu="100m", memory=memory, gpus=0, shared_memory="16Mi")
        changes: dict[str, Any] = {
            "backend": backend, "queue": queue, "priority": None, "nodes": 1, "minimum_nodes": None, "restarts": 1,
            "sampler": None, "resources": resources, "queue_timeout_seconds": 300, "run_timeout_seconds": 900,
            "ttl_seconds": 3600,
        }  # fmt: skip
        spec = JobSpec.model_validate(self._spec.job.model_copy(update=changes).model_dump())
        return ShellJob(
            run=self._run, step=step, namespace=self._cluster.pods_namespace, module="none", spec_file="/dev/null",
            spec=spec, workspace=self._spec.workspace, script=script,
        )  # fmt: skip

    def _success(self, job: ShellJob, see: Callable[[str], None] = lambda line: None) -> str:
        attempt = self._attempt(job, see)
        if attempt.error is not None:
            raise Unmet(f"{attempt.error} ({attempt.states})")
        if not attempt.lines or ": Succeeded" not in attempt.lines[-1]:
            raise Unmet(attempt.states)
        return attempt.states

    def _attempt(self, job: ShellJob, see: Callable[[str], None] = lambda line: None) -> _Attempt:
        try:
            return self._follow(job, see)
        finally:
            self._launcher().delete(job)

    def _follow(self, job: ShellJob, see: Callable[[str], None]) -> _Attempt:
        """Run the launcher until it ends.

        Raises:
            Unmet: it does not end in time; its thread is left behind, and ends when the job is deleted.
        """
        attempt, launcher = _Attempt(), self._launcher()

        def tell(line: str) -> None:
            attempt.lines.append(line)
            see(line)

        def run() -> None:
            try:
                launcher.run(job, tell)
            except BaseException as error:  # LauncherGone too
                attempt.error = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(60 * self._minutes)
        if thread.is_alive():
            raise Unmet(f"still followed after {self._minutes:g} minutes: {attempt.states}")
        return attempt

    def _delete_pod(self, job: str) -> str:
        for label in POD_SELECTORS:
            for name in pod_names(self._cluster.run_kubectl(self._cluster.pods(f"{label}={job}"))):
                self._cluster.run_kubectl(self._cluster.delete_pod(name))
                return name
        raise Unmet(f"job {job} has no running pod")
