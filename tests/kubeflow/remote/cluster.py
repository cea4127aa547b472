"""A run on a Kubeflow Pipelines server and its jobs on an API server, both of which speak the real protocols."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubeflow.training import TrainingClient
from kubernetes.client import Configuration

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.jobs import Jobs
from platform_sdk.kubeflow.remote.runs import Run, find_run
from platform_sdk.kubeflow.training_job.backend import BACKENDS, api_for
from platform_sdk.kubeflow.training_job.description import Description
from tests.kubeflow.remote.cluster_server import ClusterServer
from tests.kubeflow.remote.execution import Execution
from tests.kubeflow.remote.kfp_server import KfpServer
from tests.kubeflow.remote.pipelines import STEPS, pipeline

PLACE = read_as(ClusterSpec, Path(__file__).parents[3] / "pipelines/cluster.yaml")


class Cluster:
    """A run on both servers, moved by the test."""

    def __init__(self, kfp: KfpServer, kubernetes: ClusterServer) -> None:
        self.kfp, self.kubernetes = kfp, kubernetes
        kfp.cluster = kubernetes
        self.server = Server(kfp.url, sleep=lambda seconds: None)
        configuration = Configuration(host=kubernetes.url)
        configuration.retries = False
        self.connection = TrainingClient(client_configuration=configuration)
        self.jobs = Jobs("team-a", connection=self.connection)
        self.run = self.start()

    def start(self, run_name: str = "small", steps: Sequence[str] = STEPS, **form: Any) -> Run:
        """Start another run."""
        made = self.kfp.start(pipeline(run_name, steps), f"{run_name}-{len(self.kfp.runs)}", "team-a", **form)
        return find_run(self.server, made["run_id"], "team-a")

    @property
    def execution(self) -> Execution:
        """The execution of the first run."""
        return self.kfp.executions[self.run.run_id]

    def job(self, run: Run, task: str, backend: str = "pytorchjob", part: str = "") -> str:
        """Create the job that a step of the run creates; its name."""
        begin = self.kfp.inputs(self.kfp.executions[run.run_id].run, "begin")
        job = Description(
            run=f"{begin['run_name']}-{begin['run_id']}", step=part or f"train-{task}", namespace="team-a", module="m",
            spec_file="/w/spec.json", spec=PLACE.job.model_copy(update={"backend": backend, "queue": "hopforge"}),
            workspace=PLACE.workspace, environment=(("HOPFORGE_TASK", task),),
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
