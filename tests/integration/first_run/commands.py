"""Command lines of the first run: built here, run as processes, and their output read."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.first_run.checks import Unmet

Record = dict[str, Any]
MINUTE = 60.0
POD_SELECTORS = ("training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name")
"""Labels of a job's pods, by whose controller created them: the training-operator's, JobSet's."""


@dataclass(frozen=True)
class Cluster:
    """Addresses and names of the first run, and the programs that reach the cluster.

    ``namespace`` is None for a Pipelines of a single user, whose pods are in ``kubeflow``.
    """

    host: str
    namespace: str | None = None
    queue: str | None = None
    recipe: str = "pipelines/mygo/world.yaml"
    file: Path = Path("cluster.yaml")
    run_minutes: float = 90.0
    hopforge: tuple[str, ...] = (sys.executable, "-m", "platform_sdk.cli")
    kubectl: tuple[str, ...] = ("kubectl",)

    @property
    def pods_namespace(self) -> str:
        """The namespace of runs' pods and jobs."""
        return self.namespace or "kubeflow"

    @property
    def where(self) -> list[str]:
        """Options of the commands that reach Pipelines."""
        return ["--host", self.host, *(["--namespace", self.namespace] if self.namespace else [])]

    def upload(self, pipeline: str) -> list[str]:
        return ["upload", pipeline, *self.where, "--cluster", str(self.file), "--json"]

    def submit(self, *overrides: str) -> list[str]:
        values = [word for override in overrides for word in ("--set", override)]
        return ["submit", self.recipe, *self.where, "--cluster", str(self.file), *values, "--json"]

    def watch(self, run: str) -> list[str]:
        return ["watch", run, *self.where, "--json"]

    def logs(self, run: str) -> list[str]:
        return ["logs", run, *self.where]

    def cancel(self, run: str) -> list[str]:
        return ["cancel", run, *self.where, "--json"]

    def gc(self, *options: str) -> list[str]:
        return ["gc", "--namespace", self.pods_namespace, "--silent-minutes", "2", "--json", *options]

    def pods(self, selector: str) -> list[str]:
        return ["-n", self.pods_namespace, "get", "pods", "-l", selector, "-o", "json"]

    def delete_pod(self, name: str) -> list[str]:
        return ["-n", self.pods_namespace, "delete", "pod", name, "--wait=false"]

    def resources(self, group: str) -> list[str]:
        return ["api-resources", f"--api-group={group}", "-o", "name"]

    def run_hopforge(self, arguments: list[str], minutes: float = 10.0) -> str:
        """Return what a command printed.

        Raises:
            Unmet: it failed, or did not end in time.
        """
        return _run([*self.hopforge, *arguments], minutes)

    def run_kubectl(self, arguments: list[str]) -> str:
        """Return what kubectl printed; raises ``Unmet`` if it failed."""
        return _run([*self.kubectl, *arguments], 2.0)

    def watch_run(self, run: str, until: Callable[[Record], bool] = lambda record: False) -> Watched:
        """Watch a run to its end, or to the first record that satisfies ``until``.

        Raises:
            Unmet: neither came within ``run_minutes``.
        """
        return _watch([*self.hopforge, *self.watch(run)], until, self.run_minutes)


@dataclass
class Watched:
    """Records of ``hopforge watch --json``, and its exit status: None if it was stopped at the wanted record."""

    records: list[Record] = field(default_factory=list)
    status: int | None = None
    errors: str = ""

    @property
    def state(self) -> str:
        """The run's last state."""
        return next((str(one["state"]) for one in reversed(self.records) if "run" in one), "unknown")

    def steps(self, state: str) -> list[str]:
        """The steps that were seen in a state, in the order of the records."""
        return [one["step"] for one in self.records if "step" in one and "job" not in one and one["state"] == state]

    def reason(self) -> str:
        """The reason of the first failed step that has one, or the run's error."""
        reasons = [one.get("reason") or one.get("error") for one in self.records if one.get("state") == "FAILED"]
        return next((str(reason) for reason in reasons if reason), "")

    @property
    def jobs(self) -> list[str]:
        """The names of all jobs that were seen."""
        return list(dict.fromkeys(one["job"] for one in self.records if "job" in one))


def is_running_job(record: Record) -> bool:
    """Return whether a record of ``watch`` is of a running job."""
    return "job" in record and str(record["state"]).lower() == "running"


def pod_names(listed: str) -> list[str]:
    """The names of running pods, from ``kubectl get pods -o json``."""
    items = json.loads(listed)["items"]
    return [item["metadata"]["name"] for item in items if item.get("status", {}).get("phase") == "Running"]


def parsed(text: str) -> Any:
    """The JSON that a command printed.

    Raises:
        Unmet: it is none.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Unmet(f"no JSON ({error}): {text.strip()[:200]}") from error


def _run(words: list[str], minutes: float) -> str:
    name = " ".join(words[-1:] if len(words) < 3 else words[1:6])
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=minutes * MINUTE)
    except subprocess.TimeoutExpired as error:
        raise Unmet(f"{name} did not end within {minutes:g} minutes") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Unmet(f"status {done.returncode}: {last[0] if last else 'no output'}")
    return done.stdout


def _watch(words: list[str], until: Callable[[Record], bool], minutes: float) -> Watched:
    watched, late = Watched(), threading.Event()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def stop() -> None:
        late.set()
        process.kill()

    errors: list[str] = []
    reader = threading.Thread(
        target=lambda: errors.append(process.stderr.read() if process.stderr else ""), daemon=True
    )
    reader.start()
    limit = threading.Timer(minutes * MINUTE, stop)
    limit.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                watched.records.append(json.loads(line))
                if until(watched.records[-1]):
                    return watched
        watched.status = process.wait()
    finally:
        limit.cancel()
        process.kill()
        process.wait()
        reader.join(5)
        watched.errors = "".join(errors)
    if late.is_set():
        raise Unmet(f"{watched.state} after {minutes:g} minutes")
    return watched
