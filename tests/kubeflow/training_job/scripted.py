"""A cluster whose controllers a test moves as it likes, while time passes only where somebody sleeps."""

from __future__ import annotations

from typing import Any

from kubeflow.training import TrainingClient
from kubernetes.client import Configuration

from platform_sdk.config.cluster import JobSpec, Resources, Workspace
from platform_sdk.kubeflow.training_job.backend import api_for
from platform_sdk.kubeflow.training_job.description import Description, Owner
from platform_sdk.kubeflow.training_job.launcher import run_job
from platform_sdk.tracking.manifest import Job
from tests.kubeflow.training_job.api_server import ApiServer
from tests.kubeflow.training_job.virtual_clock import VirtualClock

SPEC = JobSpec(
    backend="pytorchjob", image="registry/trainer@sha256:0", queue="team-a", nodes=2, resources=Resources(gpus=4)
)
JOB = Description(
    run="hotpot 7B", step="train-iteration-03", namespace="team-a", module="platform_sdk.training",
    spec_file="/workspace/runs/x/job.json", spec=SPEC, workspace=Workspace(claim="runs"),
    owner=Owner("argoproj.io/v1alpha1", "Workflow", "run-abc", "uid-wf"),
)  # fmt: skip
IMAGE = f"sha256:{'0a' * 32}"
MINUTE, HOUR = 60.0, 3600.0


class Cluster:
    """A cluster's controllers, moved by the test: Kueue, the operator, the kubelet."""

    def __init__(self, server: ApiServer, job: Description = JOB) -> None:
        self.server, self.clock, self.told = server, VirtualClock(server), list[str]()
        configuration = Configuration(host=server.url)
        configuration.retries = False
        self.connection = TrainingClient(client_configuration=configuration)
        self.described = job
        self.uses: list[Job] = []  # what launchers recorded
        server.objects["localqueues", "team-a"] = {"metadata": {"name": "team-a"}}

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs that are there."""
        return [name for kind, name in self.server.objects if kind == "pytorchjobs"]

    def run(self, job: Description | None = None) -> None:
        job = job or self.described
        run_job(job, api_for(job, self.connection), self.told.append, self.clock, self.uses.append)

    def queue(self, why: str) -> None:
        self.server.condition(self._workload(), "QuotaReserved", "False", "Pending", why)

    def admit(self) -> None:
        workload = self._workload()
        self.server.condition(workload, "QuotaReserved", "True", "QuotaReserved")
        self.server.condition(workload, "Evicted", "False")
        self.resume()

    def resume(self) -> None:
        """Take the job out of its suspension, whoever does it."""
        self.server.job()["spec"]["runPolicy"]["suspend"] = False

    def _workload(self) -> dict[str, Any]:
        """Kueue's Workload for the job, created if need be."""
        label = {"kueue.x-k8s.io/job-uid": self.server.job()["metadata"]["uid"]}
        found = self.server.objects.get(("workloads", "w"))
        if found is None or found["metadata"]["labels"] != label:
            found = self.server.objects["workloads", "w"] = {"metadata": {"name": "w", "labels": label}}
        return found

    def start(self) -> None:
        name = self.server.job()["metadata"]["name"]
        for pod in ("master-0", "worker-0"):
            self.server.pods[f"{name}-{pod}"] = {
                "metadata": {"name": f"{name}-{pod}", "labels": {"training.kubeflow.org/job-name": name}},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        {"name": "pytorch", "image": "registry/trainer", "imageID": f"registry/trainer@{IMAGE}"}
                    ],
                },
            }
        self.server.condition(self.server.job(), "Running")

    def preempt(self) -> None:
        self.server.job()["spec"]["runPolicy"]["suspend"] = True
        self.server.pods.clear()
        workload = self.server.objects["workloads", "w"]
        self.server.condition(workload, "Evicted", "True", "Preempted", "to make room for team-b")
        self.server.condition(workload, "QuotaReserved", "False", "Pending", "needs 8 more GPUs")

    def succeed(self) -> None:
        for pod in self.server.pods.values():
            pod["status"]["phase"] = "Succeeded"
        self.server.condition(self.server.job(), "Running", "False")
        self.server.condition(self.server.job(), "Succeeded")

    def fail(self, ended: dict[str, Any]) -> None:
        name = self.server.job()["metadata"]["name"]
        pod = self.server.pods[f"{name}-worker-0"]
        pod["status"] = {
            "phase": "Failed",
            "containerStatuses": [{"name": "pytorch", "state": {"terminated": ended}}],
        }
        self.server.logs[f"{name}-worker-0"] = "".join(f"line {n}\n" for n in range(100))
        if ended.get("reason") == "OOMKilled":
            self.server.warn(f"{name}-worker-0", "OOMKilling", "Memory cgroup")
        self.server.condition(self.server.job(), "Failed", "True", "PyTorchJobFailed", "1 replica failed")
