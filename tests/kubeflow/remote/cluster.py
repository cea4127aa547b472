"""A run on a Kubeflow Pipelines server and its jobs on an API server, both of which speak the real protocols."""

from __future__ import annotations

from pathlib import Path

from kubeflow.training import TrainingClient
from kubernetes.client import Configuration

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.jobs import Jobs
from platform_sdk.kubeflow.remote.runs import Run, find_run
from platform_sdk.kubeflow.remote.submit import submit
from platform_sdk.kubeflow.training_job.backend import BACKENDS, api_for
from platform_sdk.kubeflow.training_job.description import Description
from tests.kubeflow.remote.cluster_server import ClusterServer
from tests.kubeflow.remote.kfp_server import KfpServer

PLACE = read_as(ClusterSpec, Path(__file__).parents[3] / "pipelines/cluster.yaml")


class Cluster:
    """A run on both servers, moved by the test."""

    def __init__(self, kfp: KfpServer, kubernetes: ClusterServer, recipe: Path) -> None:
        self.kfp, self.kubernetes, self.recipe = kfp, kubernetes, recipe
        self.server = Server(kfp.url, sleep=lambda seconds: None)
        configuration = Configuration(host=kubernetes.url)
        configuration.retries = False
        self.connection = TrainingClient(client_configuration=configuration)
        self.jobs = Jobs("team-a", connection=self.connection)
        self.run = self.start()

    def start(self) -> Run:
        made = submit(self.server, self.recipe, (), PLACE, namespace="team-a")
        return find_run(self.server, made.run_id, "team-a")

    def job(self, run: Run, task: str, backend: str = "pytorchjob") -> str:
        """Make the job that a step of the run makes; its name."""
        job = Description(
            run=f"small-{run.run_id}", step=f"train-{task}", namespace="team-a", module="m", spec_file="/w/spec.json",
            spec=PLACE.job.model_copy(update={"backend": backend, "queue": "hopforge"}), workspace=PLACE.workspace,
            environment=(("HOPFORGE_TASK", task),),
        )  # fmt: skip
        api_for(job, self.connection).create(BACKENDS[backend].render(job))
        return job.name

    def pod(self, name: str, labels: dict[str, str], log: str | None = None) -> None:
        container = {"name": "pytorch"} if "job-name" in str(labels) else {"name": "main"}
        pod = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]},
               "status": {"phase": "Running"}}  # fmt: skip
        self.kubernetes.pods[name] = pod
        if log is not None:
            self.kubernetes.logs[name] = log
